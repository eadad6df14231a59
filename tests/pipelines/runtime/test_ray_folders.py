"""The private folder of a command's Ray, and the length of its path."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from small_disk import mounted

from cotbert_core.errors import UserError
from pipelines.runtime import ray_folders


def test_a_private_folder_is_made_and_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(ray_folders, "LONGEST_FOLDER", 200)  # pytest's own are too long for sockets
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / "new"))
    with ray_folders.private_folder() as folder:
        (folder / "r" / "session").mkdir(parents=True)
        assert folder.parent == tmp_path / "new"
        assert len(folder.name) == len(ray_folders.PREFIX) + ray_folders.RANDOM
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not folder.exists()


KILLED = """
import os, signal
from pipelines.runtime import ray_folders
ray_folders.LONGEST_FOLDER = 200
with ray_folders.private_folder() as folder:
    (folder / "r").mkdir()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_folders_of_killed_jobs_are_removed_and_no_others(tmp_path, monkeypatch):
    monkeypatch.setattr(ray_folders, "LONGEST_FOLDER", 200)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    without_owner = tmp_path / "cotbert-01234567"
    without_owner.mkdir()
    with ray_folders.private_folder() as running:
        killed = subprocess.run([sys.executable, "-c", KILLED], check=False)
        assert killed.returncode == -signal.SIGKILL
        left = {*tmp_path.iterdir()} - {without_owner, running}
        assert len(left) == 1
        with ray_folders.private_folder() as second:
            assert {*tmp_path.iterdir()} == {without_owner, running, second}
    assert [*tmp_path.iterdir()] == [without_owner]


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


def test_a_folder_on_a_full_disk_is_not_made(tmp_path, monkeypatch):
    """Ray would start new workers without end."""
    monkeypatch.setattr(ray_folders, "LONGEST_FOLDER", 200)
    with mounted(tmp_path / "small", "64k") as place:
        monkeypatch.setenv("RAY_TMPDIR", str(place))
        with pytest.raises(OSError, match="No space left") as error, ray_folders.private_folder():
            pass
        assert error.value.filename == str(place)
        assert not [*place.iterdir()]
