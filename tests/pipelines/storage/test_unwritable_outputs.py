"""An output that cannot be written ends a command with status 2 before anything starts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cotbert_core.errors import UserError
from pipelines.cli import main
from pipelines.storage.output_folder import (
    check_output,
    check_writable,
    require_empty,
    require_new_file,
)

# A command for each way of checking an output, as a user gives it; FILE, MODEL and OUT stand for a
# text file, an encoder and the output.
COMMANDS = {
    "prepare": "prepare --input FILE --encoder MODEL --output OUT",
    "train": "train quickstart --corpus FILE --encoder MODEL --output OUT",
    "evaluate --report": "evaluate MODEL --report OUT.html",
}


@pytest.fixture
def nothing_starts(monkeypatch, tmp_path):
    """No Ray session, no encoder and no tracked run; the cache is in tmp_path.

    Replaced is what other modules do not import by name: they would keep it after the test.
    """
    import ray

    import cotbert_core.encoder.backbone
    from pipelines.recording import tracking

    def start(*_, **__):
        pytest.fail("something started")

    monkeypatch.setenv("COTBERT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(tracking, "tracked_run", start)
    monkeypatch.setattr(ray, "init", start)
    monkeypatch.setattr(cotbert_core.encoder.backbone, "open_pretrained", start)


@pytest.mark.usefixtures("nothing_starts")
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("place", ["below a file", "in /proc"])
def test_commands_refuse_it(tmp_path, bert_folder, capsys, command, place):
    (tmp_path / "file").write_text("in the way")
    out = tmp_path / "file" / "out" if place == "below a file" else Path("/proc/out")
    (tmp_path / "a.txt").write_text("A man is playing the guitar.\nTwo dogs run.\n")
    stand_for = {"FILE": str(tmp_path / "a.txt"), "MODEL": bert_folder, "OUT": str(out)}
    words = COMMANDS[command].split()
    assert main([stand_for.get(word, word.replace("OUT", str(out))) for word in words]) == 2
    stderr = capsys.readouterr().err
    assert f"{out}" in stderr
    assert "cannot be written" in stderr
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"),
                                   OSError(30, "Read-only file system")])  # fmt: skip
def test_what_the_system_says_decides(tmp_path, monkeypatch, error):
    """As a user without rights meets it, and a read-only mount; tests may run as root."""

    def refuse(*_, **__):
        raise error

    check_writable(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(os, "mkdir", refuse)
    message = rf"b' cannot be written \({error.strerror}\): give a folder"
    with pytest.raises(UserError, match=message):
        require_empty(tmp_path / "a" / "b")
    (tmp_path / "settings.json").write_text("{}")
    with pytest.raises(UserError, match=error.strerror):
        check_output(tmp_path, "run", {})


def test_a_long_name_and_a_file_in_the_place_of_unfinished_work_are_refused(tmp_path):
    with pytest.raises(UserError, match="File name too long"):
        require_empty(tmp_path / ("a" * 250))  # which leaves no room for .partial
    (tmp_path / "out.partial").write_text("mine")
    with pytest.raises(UserError, match=r"out\.partial' is a file, and a folder"):
        require_empty(tmp_path / "out")
    assert (tmp_path / "out.partial").read_text() == "mine"
    assert require_new_file(tmp_path / "out") == tmp_path / "out"  # of a killed command
    (tmp_path / "file.partial").mkdir()
    with pytest.raises(UserError, match=r"file\.partial' is a folder, and a file"):
        require_new_file(tmp_path / "file")
