"""Checkpoints that a thread writes while the training continues."""

from __future__ import annotations

import threading

import pytest
import torch

from cotbert_core.training import checkpoints as module
from cotbert_core.training.checkpoint_writer import CheckpointWriter, host_copy
from cotbert_core.training.checkpoints import SupersededError, begin_attempt, checkpoints, newest


@pytest.fixture
def state():
    weight = torch.full((64, 64), 1.0)
    return {"step": 1, "method": {"a": weight, "tied": weight.detach()}, "random": [{"loss": 0.5}]}


@pytest.fixture
def slow_disk(monkeypatch):
    """torch.save that waits until the returned event is set."""
    go_on, save = threading.Event(), torch.save

    def waiting(value, file):
        assert go_on.wait(20)
        save(value, file)

    monkeypatch.setattr(module.torch, "save", waiting)
    return go_on


def test_a_step_may_change_the_state_while_it_is_written(tmp_path, state, slow_disk):
    writer = CheckpointWriter(tmp_path, None, background=True)
    writer.write(1, 50.0, state)
    state["method"]["a"].fill_(2.0)
    state["random"].append({"loss": 0.1})
    assert checkpoints(tmp_path) == []
    with pytest.raises(RuntimeError, match="wait for it first"):
        writer.write(2, 50.0, state)
    slow_disk.set()
    writer.wait()
    written = newest(tmp_path).load()
    assert torch.equal(written["method"]["a"], torch.full((64, 64), 1.0))
    assert written["random"] == [{"loss": 0.5}]
    writer.write(2, 50.0, state)
    writer.wait()
    assert [checkpoint.step for checkpoint in checkpoints(tmp_path)] == [1, 2]


def test_wait_raises_what_the_thread_met_once(tmp_path, state, monkeypatch):
    def refuse(*_args):
        raise OSError(28, "No space left on device")

    writer = CheckpointWriter(tmp_path, None, background=True)
    monkeypatch.setattr(module.torch, "save", refuse)
    writer.write(1, 50.0, state)
    with pytest.raises(OSError, match=r"cannot be written .*No space left"):
        writer.wait()
    writer.wait()
    assert list(tmp_path.iterdir()) == []


def test_an_attempt_that_was_superseded_writes_nothing(tmp_path, state):
    writer = CheckpointWriter(tmp_path, begin_attempt(tmp_path), background=True)
    begin_attempt(tmp_path)
    writer.write(1, 50.0, state)
    with pytest.raises(SupersededError):
        writer.wait()
    assert checkpoints(tmp_path) == []


def test_tied_weights_are_copied_once(state):
    copied = host_copy(state)
    assert copied["method"]["a"] is copied["method"]["tied"]
    assert copied["method"]["a"].data_ptr() != state["method"]["a"].data_ptr()
    other = host_copy({"a": torch.ones(3), "b": torch.ones(3)})
    assert other["a"] is not other["b"]
