"""Saving a run's state when the storage refuses it, with and without a thread."""

from __future__ import annotations

import io

import pytest
import torch
from torch import nn

from cotbert_core.settings import TrainSettings, override
from cotbert_core.training import checkpoints as files
from cotbert_core.training.checkpoint_writer import CheckpointWriter
from cotbert_core.training.checkpoints import checkpoints
from pipelines.training import training_state as module
from pipelines.training.metrics_log import METRICS_FILE, read_rows
from pipelines.training.metrics_writer import MetricsWriter
from pipelines.training.training_state import (
    Training,
    finish_saving,
    log_metrics,
    restore,
    save,
    warn_slow_precision,
)


@pytest.fixture
def warned(monkeypatch):
    texts = []
    monkeypatch.setattr(module, "_warn", lambda _training, text: texts.append(text))
    monkeypatch.setattr(module, "WAIT_SECONDS", 0)
    return texts


def run(folder, background=False, *, started=True):
    method = nn.Linear(4, 4)
    folder.mkdir(exist_ok=True)
    metrics = MetricsWriter(folder / METRICS_FILE)
    if started:
        metrics.start(0)
    return Training(
        settings=override(TrainSettings(), {"max_steps": 9, "batch_size": 2}),
        method=method,
        model=method,
        optimizer=torch.optim.AdamW(method.parameters()),
        corpus=range(100),
        dev={},
        messages=None,
        folder=folder,
        writer=CheckpointWriter(folder, None, background=background),
        metrics=metrics,
    )


def take_step(training, step, loss=0.5):
    training.step = step
    log_metrics(training, {"loss": loss})


def saved_steps(folder):
    return [checkpoint.step for checkpoint in checkpoints(folder)]


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
    for training.step in (3, 6):
        save(training, 50.0)
    finish_saving(training)
    assert saved_steps(tmp_path) == [6]
    (warning,) = warned
    assert warning.count("step-00000003") == 1


class FullDisk(io.FileIO):
    def write(self, data):
        """Refuse the data, as a disk without space does."""
        raise OSError(28, "No space left on device")


def test_a_checkpoint_waits_for_the_rows_of_its_steps(tmp_path, warned, monkeypatch):
    """Otherwise a run that continues from it would lack them."""
    training = run(tmp_path)
    monkeypatch.setattr(training.metrics, "_file", FullDisk(tmp_path / METRICS_FILE, "a"))
    take_step(training, 3)
    save(training, 50.0)
    assert saved_steps(tmp_path) == []
    assert METRICS_FILE in warned[0]
    monkeypatch.setattr(FullDisk, "write", io.FileIO.write)
    take_step(training, 6, loss=0.25)
    save(training, 50.0)
    assert saved_steps(tmp_path) == [6]
    assert [row["loss"] for row in read_rows(tmp_path / METRICS_FILE).values()] == [0.5, 0.25]


def test_a_checkpoint_after_10_000_steps_is_as_large_as_after_10(tmp_path):
    """Nothing in it grows with the steps. They are counted here, not trained."""
    sizes = {}
    for steps in (10, 10_000):
        folder = tmp_path / str(steps)
        training = run(folder)
        for step in range(1, steps + 1):
            take_step(training, step)
        save(training, 50.0)
        training.metrics.close()
        (written,) = checkpoints(folder)
        sizes[steps] = (written.path / files.STATE_FILE).stat().st_size
        rows = (folder / METRICS_FILE).read_bytes().count(b"\n")
        assert rows == steps, "premise: the rows are in the file"
    assert abs(sizes[10_000] - sizes[10]) < 1 << 10


def test_a_checkpoint_of_an_earlier_version_opens(tmp_path):
    """Its list of all numbers is left alone; those of the steps after it go."""
    training = run(tmp_path)
    for step in (1, 2, 3):
        take_step(training, step)
    training.step = 2
    save(training, 50.0)
    (found,) = checkpoints(tmp_path)
    state = {**found.load(), "told": [{"step": 1, "total": 9, "values": {"loss": 0.25}}]}
    files.write_checkpoint(tmp_path, 2, 50.0, state)
    again = run(tmp_path, started=False)
    restore(again)
    assert again.step == 2
    assert list(read_rows(tmp_path / METRICS_FILE)) == [1, 2]


def test_an_attempt_that_was_superseded_leaves_the_rows_alone(tmp_path):
    """A worker that loads its encoder while its driver has given it up."""
    folder = tmp_path / "checkpoints"
    late = run(tmp_path, started=False)
    late.writer = CheckpointWriter(folder, files.begin_attempt(folder), background=False)
    files.begin_attempt(folder)
    log_metrics(run(tmp_path), {"loss": 0.5})
    with pytest.raises(files.SupersededError):
        restore(late)
    assert len(read_rows(tmp_path / METRICS_FILE)) == 1


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("times", [2, 3])
def test_the_last_checkpoint_is_tried_three_times(tmp_path, warned, monkeypatch, background, times):
    training = run(tmp_path, background)
    tried = refuse(monkeypatch, times)
    training.step = training.total
    if times < module.LAST_TRIES:
        save(training, 50.0)
        assert saved_steps(tmp_path) == [9]
    else:
        with pytest.raises(OSError, match="No space left"):
            save(training, 50.0)
    assert tried == [9, 9, 9]
    assert len(warned) == 2


@pytest.mark.parametrize(
    ("precision", "fast", "warnings"),
    [("bf16", False, 1), ("bf16", True, 0), ("auto", False, 0), ("fp32", False, 0)],
)
def test_bf16_where_it_is_slower_is_a_warning(
    tmp_path, warned, monkeypatch, precision, fast, warnings
):
    monkeypatch.setattr(module, "has_fast_bf16", lambda _: fast)
    training = run(tmp_path)
    training.settings = override(training.settings, {"precision": precision})
    monkeypatch.setattr(module, "current_device", lambda: torch.device("cuda"))
    warn_slow_precision(training)
    assert ["this GPU, many times" in text for text in warned] == [True] * warnings
