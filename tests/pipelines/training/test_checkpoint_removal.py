"""What a finished run leaves of its checkpoints."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
import torch

from cotbert_core.settings import TrainSettings
from cotbert_core.training.checkpoints import best, checkpoints, write_checkpoint
from pipelines.options.shared import KeptFiles
from pipelines.storage.corpus import Corpus
from pipelines.training.run_result import remove_checkpoints
from pipelines.training.training_run import RunOptions, TrainingRun


@pytest.fixture
def run(tmp_path):
    """A finished run: a model, a result and three checkpoints, the best of them the oldest."""
    for step, score in ((2, 5.0), (4, 3.0), (6, 4.0)):
        write_checkpoint(tmp_path / "checkpoints", step, score, {"w": torch.ones(1000)})
    (tmp_path / "model" / "1_Pooling").mkdir(parents=True)
    (tmp_path / "model" / "1_Pooling" / "config.json").write_text("{}")
    (tmp_path / "result.json").write_text("{}")
    return TrainingRun(TrainSettings(), Corpus(tmp_path, {}), {}, tmp_path)


@pytest.mark.parametrize(("keep", "left"), [("none", []), ("best", [2]), ("all", [2, 4, 6])])
def test_the_checkpoints_that_are_asked_for_stay(run, keep, left):
    folder = run.checkpoints
    options = RunOptions(kept=KeptFiles(keep_checkpoints=keep))
    remove_checkpoints(replace(run, options=options), best(folder))
    assert [found.step for found in checkpoints(folder)] == left
    assert folder.exists() == (keep != "none")
    assert all(found.damage() is None for found in checkpoints(folder))
    assert (run.output / "model" / "1_Pooling" / "config.json").is_file()


def test_nothing_is_deleted_while_the_model_may_not_be_on_the_disk(run, monkeypatch, capsys):
    def refuse(descriptor):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", refuse)
    remove_checkpoints(run, best(run.checkpoints))
    assert [found.step for found in checkpoints(run.checkpoints)] == [2, 4, 6]
    assert "Input/output error): its checkpoints are kept" in capsys.readouterr().err
