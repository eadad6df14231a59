"""The private folder of a command's Ray: its length, and which of them the next command removes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from process_tree import below, wait_for_end

from cotbert_core.errors import UserError
from pipelines.runtime import ray_folders

# A command with a program that lives on after it, as Ray's do for a moment.
COMMAND = """
import subprocess, sys
from pipelines.runtime.ray_folders import private_folder
with private_folder() as folder:
    waits = "print(flush=True); input()"
    program = [sys.executable, "-c", waits, *[f"--temp-dir={folder}"] * int(sys.argv[1])]
    # Until it runs it has no command line.
    subprocess.Popen(program, close_fds=False, stdout=subprocess.PIPE).stdout.readline()
    print(folder, flush=True)
    input()
"""


@pytest.fixture
def place(monkeypatch):
    """A folder for private folders; pytest's own are too long for sockets."""
    with tempfile.TemporaryDirectory(prefix="r-", dir="/tmp") as folder:
        monkeypatch.setenv("RAY_TMPDIR", folder)
        yield Path(folder)


def start_command(*, names_folder):
    """Start a command; its program ends when the pipe to both is closed."""
    words = [sys.executable, "-c", COMMAND, str(int(names_folder))]
    command = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return command, Path(command.stdout.readline().strip())


def start_another():
    with ray_folders.private_folder() as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not folder.exists()


def test_the_folder_of_a_killed_command_is_removed_by_the_next(place):
    command, folder = start_command(names_folder=False)
    with command:
        (folder / "r" / "session").mkdir(parents=True)
        start_another()
        assert (folder / "r" / "session").is_dir(), "the command lives"
        command.kill()
        command.wait()
        start_another()
        assert list(place.iterdir()) == []


def test_a_folder_stays_until_its_ray_has_ended_too(place):
    command, folder = start_command(names_folder=True)
    with command:
        programs = below(command.pid, sys.executable)
        assert programs
        command.kill()
        command.wait()
        start_another()
        assert folder.is_dir()
    wait_for_end(programs)  # its program ends with the pipe
    start_another()
    assert list(place.iterdir()) == []


def test_a_folder_with_the_logs_of_a_failure_stays(place):
    with pytest.raises(RuntimeError), ray_folders.private_folder() as folder:
        raise RuntimeError("a worker died")
    start_another()
    assert list(place.iterdir()) == [folder]


def test_folders_that_may_belong_to_another_command_stay(place, monkeypatch):
    """One that is just starting, one on another machine, another user's, a link."""
    starting, elsewhere, foreign, link = (place / f"cotbert-0000000{n}" for n in range(4))
    for folder in (starting, elsewhere, foreign):
        folder.mkdir()
    link.symlink_to(foreign)
    (starting / "unlocked").touch()
    (elsewhere / "another-machine.lock").touch()
    ray_folders._lock_path(foreign).touch()
    own = os.getuid()
    for uid, left in ((own + 1, {starting, elsewhere, foreign, link}),
                      (own, {starting, elsewhere, link})):  # fmt: skip
        monkeypatch.setattr(ray_folders.os, "getuid", lambda uid=uid: uid)
        start_another()
        assert set(place.iterdir()) == left


def test_a_folder_too_long_for_sockets_is_not_taken(monkeypatch):
    long = "/a-folder-too-long-for-sockets"
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    monkeypatch.setattr(ray_folders.tempfile, "gettempdir", lambda: long)
    assert ray_folders.ray_folder("cotbert-01234567").parent == Path("/tmp")
    monkeypatch.setenv("RAY_TMPDIR", "/scratch")
    assert ray_folders.ray_folder("cotbert-01234567").parent == Path("/scratch")
    monkeypatch.setenv("RAY_TMPDIR", long)
    with pytest.raises(UserError, match=f"RAY_TMPDIR is '{long}', too long .* at most 21 char"):
        ray_folders.ray_folder("cotbert-01234567")
