"""Saving a run's state when the storage refuses it, with and without a thread."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from cotbert_core.settings import TrainSettings, override
from cotbert_core.training import checkpoints as files
from cotbert_core.training.checkpoint_writer import CheckpointWriter
from cotbert_core.training.checkpoints import checkpoints
from pipelines.training import training_state as module
from pipelines.training.training_state import Training, finish_saving, save


@pytest.fixture
def warned(monkeypatch):
    sent = []
    monkeypatch.setattr(module, "_send", lambda _training, news: sent.extend(news))
    monkeypatch.setattr(module, "WAIT_SECONDS", 0)
    return sent


def run(folder, background):
    method = nn.Linear(4, 4)
    return Training(
        settings=override(TrainSettings(), {"max_steps": 9, "batch_size": 2}),
        method=method,
        model=method,
        optimizer=torch.optim.AdamW(method.parameters()),
        corpus=range(100),
        dev={},
        mailbox=None,
        folder=folder,
        writer=CheckpointWriter(folder, None, background=background),
    )


def refuse(monkeypatch, times):
    """Let the next `times` writes find no space; the list of steps that were tried."""
    tried, real = [], torch.save

    def saved(value, file):
        tried.append(value["step"])
        if len(tried) <= times:
            raise OSError(28, "No space left on device")
        real(value, file)

    monkeypatch.setattr(files.torch, "save", saved)
    return tried


@pytest.mark.parametrize("background", [False, True])
def test_a_refused_checkpoint_is_a_warning_and_the_next_is_written(
    tmp_path, warned, monkeypatch, background
):
    training = run(tmp_path, background)
    refuse(monkeypatch, times=1)
    for step in (3, 6):
        training.step = step
        save(training, 50.0)
    finish_saving(training)
    assert [checkpoint.step for checkpoint in checkpoints(tmp_path)] == [6]
    assert len(warned) == 1
    assert "step-00000003" in warned[0]["warning"]


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("times", [2, 3])
def test_the_last_checkpoint_is_tried_three_times(tmp_path, warned, monkeypatch, background, times):
    training = run(tmp_path, background)
    tried = refuse(monkeypatch, times)
    training.step = training.total
    if times < module.LAST_TRIES:
        save(training, 50.0)
        assert [checkpoint.step for checkpoint in checkpoints(tmp_path)] == [9]
    else:
        with pytest.raises(OSError, match="No space left"):
            save(training, 50.0)
    assert tried == [9, 9, 9]
    assert len(warned) == 2
