"""Checkpoints that are whole, the ones that stay, and what becomes of damaged ones."""

from __future__ import annotations

import errno
import math
import pickle
import warnings
from pathlib import Path

import pytest
import torch

from cotbert_core.training import checkpoints as module
from cotbert_core.training.checkpoints import (
    SupersededError,
    begin_attempt,
    best,
    checkpoints,
    newest,
    write_checkpoint,
)


def state(step):
    return {"step": step, "weights": torch.full((64, 64), float(step))}


def write(folder, scores):
    for step, score in scores.items():
        write_checkpoint(folder, step, score, state(step))


def steps(folder):
    return [checkpoint.step for checkpoint in checkpoints(folder)]


def test_the_two_newest_and_the_best_stay(tmp_path):
    write(tmp_path, {10: 50.0, 20: 70.0, 30: 60.0, 40: 65.0, 50: 64.0})
    assert steps(tmp_path) == [20, 40, 50]
    assert newest(tmp_path).step == 50
    assert best(tmp_path).step == 20
    assert not list(tmp_path.rglob("*.partial"))
    for mapped in (False, True):
        back = newest(tmp_path).load(mapped=mapped)
        assert back["step"] == 50
        assert torch.equal(back["weights"], torch.full((64, 64), 50.0))
    equal, none = tmp_path / "equal", tmp_path / "none"
    write(equal, {1: 70.0, 2: 70.0, 3: 70.0, 4: 70.0})
    assert (best(equal).step, steps(equal)) == (1, [1, 3, 4])
    assert newest(none) is best(none) is None


def test_a_deletion_that_was_interrupted_is_completed_by_the_next_attempt(tmp_path, monkeypatch):
    def killed(folder, ignore_errors=False):
        if folder.is_dir():
            (folder / "checkpoint.json").unlink()
            raise KeyboardInterrupt

    write(tmp_path, {10: 50.0, 20: 70.0})
    with monkeypatch.context() as patch:
        patch.setattr(module.shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            write(tmp_path, {30: 60.0})
    begin_attempt(tmp_path)
    assert {path.name for path in tmp_path.glob("step-*")} == {"step-00000020", "step-00000030"}


def test_a_score_that_is_not_a_number_is_the_lowest(tmp_path):
    write(tmp_path, {10: math.nan, 20: 85.0, 30: 80.0, 40: 79.0})
    assert steps(tmp_path) == [20, 30, 40]
    assert best(tmp_path).step == 20


def test_code_in_a_checkpoint_is_not_run(tmp_path):
    class Code:
        def __reduce__(self):
            return Path.mkdir, (tmp_path / "made",)

    write_checkpoint(tmp_path, 1, 50.0, {"weights": Code()})
    for mapped in (False, True):
        with pytest.raises(pickle.UnpicklingError, match="Weights only load failed"):
            newest(tmp_path).load(mapped=mapped)
    assert not (tmp_path / "made").exists()


def cut(file):
    file.write_bytes(file.read_bytes()[:-100])


def flip(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


DAMAGES = {"has .* bytes and had": cut, "was changed": flip, "is missing": lambda f: f.unlink()}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_one_is_reported_and_skipped(tmp_path, damage):
    write(tmp_path, {1: 50.0, 2: 60.0})
    DAMAGES[damage](tmp_path / "step-00000002" / module.STATE_FILE)
    for choose in (newest, best):
        with pytest.warns(UserWarning, match=rf"step-00000002' is damaged \(state.pt {damage}"):
            assert choose(tmp_path).step == 1


@pytest.mark.parametrize(
    ("note", "message"),
    [("{", "cannot be read"), ('{"step": 2, "score": 60.0, "bytes": 9}', "is incomplete")],
)
def test_one_without_a_whole_note_is_reported_and_skipped(tmp_path, note, message):
    write(tmp_path, {1: 50.0, 2: 60.0})
    (tmp_path / "step-00000002" / module.NOTE_FILE).write_text(note)
    with pytest.warns(UserWarning, match=f"checkpoint.json {message}"):
        assert newest(tmp_path).step == 1


def test_a_damaged_one_is_replaced_when_its_step_is_done_again(tmp_path):
    write(tmp_path, {1: 50.0, 2: 60.0})
    flip(tmp_path / "step-00000002" / module.STATE_FILE)
    write(tmp_path, {2: 60.0})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert newest(tmp_path).step == 2


@pytest.mark.parametrize("where", ["save", "note", "rename"])
def test_a_refused_write_leaves_the_ones_before(tmp_path, monkeypatch, where):
    write(tmp_path, {1: 50.0})

    def refuse(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    owner, name = {
        "save": (module.torch, "save"),
        "note": (module, "write_json"),
        "rename": (module.Path, "rename"),
    }[where]
    monkeypatch.setattr(owner, name, refuse)
    with pytest.raises(OSError, match=r"step-00000002' cannot be written .*No space left"):
        write_checkpoint(tmp_path, 2, 60.0, state(2))
    monkeypatch.undo()
    assert steps(tmp_path) == [1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000001"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is Linux's")
def test_a_disk_that_fills_up_in_the_middle_is_named_by_the_system():
    """Not by torch, whose writer would end in a SystemError."""
    large = {"weights": torch.zeros(1 << 20)}
    with pytest.raises(OSError, match="No space left") as caught:
        module._write_state(Path("/dev/full"), large)
    assert caught.value.errno == errno.ENOSPC


def test_only_the_latest_attempt_writes(tmp_path, monkeypatch):
    """One that another overtakes in the middle of its writing leaves what is there as it was."""
    first = begin_attempt(tmp_path)
    write_checkpoint(tmp_path, 1, 50.0, state(1), first)
    save, second = torch.save, []

    def overtaken(value, file):
        save(value, file)
        second.append(begin_attempt(tmp_path))

    monkeypatch.setattr(module.torch, "save", overtaken)
    with pytest.raises(SupersededError):
        write_checkpoint(tmp_path, 2, 60.0, state(2), first)
    monkeypatch.undo()
    with pytest.raises(SupersededError, match="a newer attempt writes the checkpoints"):
        write_checkpoint(tmp_path, 1, 99.0, state(7), first)
    assert newest(tmp_path).load()["step"] == 1
    write_checkpoint(tmp_path, 2, 60.0, state(2), second[-1])
    assert steps(tmp_path) == [1, 2]
    assert not list(tmp_path.rglob("*.partial"))
