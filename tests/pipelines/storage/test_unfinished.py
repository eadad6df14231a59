"""What a job leaves when it ends in the middle, and two jobs that want the same output."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from cotbert_core.errors import ReadError, UserError
from cotbert_core.files import atomic_folder
from pipelines.storage.output_folder import RUN_FILE
from pipelines.storage.resumable_output import atomic_file, locked, resumable_output

RECORD = {"job": "test", "options": {"inputs": ("a", "b")}}


def interrupted(output, record, error=RuntimeError, text="1", message="reason"):
    """A job that writes a file to each folder and then ends by `error`."""

    def job():
        with resumable_output(output, record) as work:
            for folder in (work.output, work.scratch):
                (folder / "a").write_text(text)
            raise error("reason")

    with pytest.raises(error, match=message):
        job()


def names(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*"))


def test_a_folder_has_its_name_when_whole_and_nothing_is_left_beside_it(tmp_path):
    out = tmp_path / "deep" / "out"
    with resumable_output(out, RECORD) as work:
        assert not work.before
        (work.output / "a").write_text("1")
        (work.scratch / "b").write_text("1")
        assert not out.exists()
    assert names(tmp_path) == ["deep", "deep/out", "deep/out/a"]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (RuntimeError, "reason"),
        (ReadError, "reason"),
        (KeyboardInterrupt, "give the same command again to continue"),
    ],
)
def test_the_same_job_continues(tmp_path, error, message, capsys):
    out = tmp_path / "out"
    interrupted(out, RECORD, error, message=message)
    with resumable_output(out, RECORD) as work:
        assert work.before
        assert names(work.output) == names(work.scratch) == ["a"]
    assert names(tmp_path) == ["out", "out/a"]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({**RECORD, "options": {"inputs": ["a"]}}, "an unfinished job with other options.inputs"),
        ({**RECORD, "job": "other", "new": 1}, "an unfinished job with other job, new"),
        ({"job": "test"}, "an unfinished job with other options.inputs"),
        (
            {**RECORD, "files": {f"/texts/{n:04}.txt": [1, 2] for n in range(1006)}},
            "an unfinished job with other input /texts/0000.txt, input /texts/0001.txt, input "
            "/texts/0002.txt, input /texts/0003.txt, input /texts/0004.txt and 1,001 more",
        ),
    ],
)
def test_what_another_job_left_is_discarded(tmp_path, capsys, record, message):
    out = tmp_path / "out"
    interrupted(out, RECORD)
    for home in (tmp_path / "out.partial").iterdir():
        if home.is_dir():
            (home / "scratch" / RUN_FILE).write_text("its run")
    with resumable_output(out, record) as work:
        assert not work.before
        assert names(work.output) == names(work.scratch) == []
        assert work.discarded == ("its run",)
    assert capsys.readouterr().err == f"discarding {out}.partial, the work of {message}\n"


@pytest.mark.parametrize("first", ["output/a", "scratch/a", "record.json"])
def test_work_whose_deletion_was_interrupted_is_not_continued(tmp_path, monkeypatch, capsys, first):
    out, other = tmp_path / "out", {"job": "other"}
    interrupted(out, RECORD)

    def killed(folder, ignore_errors=False):
        for file in folder.rglob("*"):
            if file.match(first):
                file.unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt), resumable_output(out, other):
            pytest.fail("the block ran")
    capsys.readouterr()
    for record in (RECORD, other):
        with resumable_output(out, record) as work:
            assert not work.before
            assert names(work.output) == names(work.scratch) == []
        out.rmdir()
    assert names(tmp_path) == []
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("inside", ["out", "out/deep"])
def test_the_current_folder_is_no_output_whose_place_is_taken(tmp_path, monkeypatch, inside):
    (tmp_path / inside).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / inside)
    message = "holds the current folder" if inside == "out" else "already holds something"
    for begun in (resumable_output(tmp_path / "out", RECORD), atomic_folder(tmp_path / "out")):
        with pytest.raises(UserError, match=message), begun:
            pytest.fail("the block ran")
    assert names(tmp_path) == sorted({"out", inside})


def test_a_mount_point_is_no_output_whose_place_is_taken(tmp_path, monkeypatch):
    (tmp_path / "out").mkdir()
    monkeypatch.setattr("os.path.ismount", lambda path: path == tmp_path / "out")
    for begun in (resumable_output(tmp_path / "out", RECORD), atomic_folder(tmp_path / "out")):
        with pytest.raises(UserError, match="is a mount point, and the finished"), begun:
            pytest.fail("the block ran")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("out.partial", "was not written by test, which needs a folder of this name: move it"),
        ("out", "already holds something"),
    ],
)
def test_a_strangers_folder_is_in_the_way(tmp_path, name, message):
    (tmp_path / name).mkdir()
    (tmp_path / name / "mine").write_text("dear")
    with pytest.raises(UserError, match=message), resumable_output(tmp_path / "out", RECORD):
        pytest.fail("the block ran")
    assert names(tmp_path) == [name, f"{name}/mine"]


def test_an_end_without_work_and_a_users_mistake_leave_nothing(tmp_path):
    interrupted(tmp_path / "out", RECORD, text="")
    assert names(tmp_path) == []
    interrupted(tmp_path / "out", RECORD)
    interrupted(tmp_path / "out", RECORD, UserError)
    assert names(tmp_path) == []


def test_half_written_files_are_not_there_for_the_next_run(tmp_path):
    out = tmp_path / "out"

    def job():
        with resumable_output(out, RECORD) as work:
            for name in ("whole", "half"):
                with atomic_file(work.output / name, work.scratch) as path:
                    path.write_text("1")
                    if name == "half":
                        raise RuntimeError

    with pytest.raises(RuntimeError):
        job()
    assert len(list(tmp_path.rglob("half.*.tmp"))) == 1
    with resumable_output(out, RECORD) as work:
        assert names(work.output) == ["whole"]
        assert names(work.scratch) == []
    assert names(out) == ["whole"]


def test_two_jobs_do_not_write_one_output(tmp_path):
    with resumable_output(tmp_path / "out", RECORD) as work:
        (work.output / "a").write_text("1")
        with pytest.raises(UserError, match=(
            rf"output '{tmp_path}/out' is being written by process {os.getpid()} on "
            rf"{socket.gethostname()}: wait for it, or give another folder$"
        )), resumable_output(tmp_path / "out", RECORD):  # fmt: skip
            pytest.fail("the block ran")
        assert names(work.output) == ["a"]
    assert names(tmp_path) == ["out", "out/a"]


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path):
    """The lock is the system's: a process id that is in use again does not hold it."""
    hold = (
        "import os, sys, signal; from pathlib import Path\n"
        "from pipelines.storage.resumable_output import locked\n"
        "with locked(Path(sys.argv[1]), 'it'): os.kill(os.getpid(), signal.SIGKILL)"
    )
    lock = tmp_path / "lock"
    subprocess.run([sys.executable, "-c", hold, lock], check=False)
    assert lock.read_text().endswith(f"\n{socket.gethostname()}\n")
    lock.write_text(f"{os.getpid()}\n{socket.gethostname()}\n")
    with locked(lock, "it"):
        pass
    assert not lock.exists()


def test_a_lock_that_is_given_up_in_time_is_waited_for(tmp_path, monkeypatch):
    """The first one removes its file, and the second one locks a new file and not that one."""
    lock, refused, flock = tmp_path / "lock", threading.Event(), fcntl.flock

    def flock_and_report(file, operation):
        try:
            flock(file, operation)
        except BlockingIOError:
            refused.set()
            raise

    def wait_for_it():
        with locked(lock, "it", patience=60):
            return lock.exists()

    monkeypatch.setattr(fcntl, "flock", flock_and_report)
    with ThreadPoolExecutor(1) as pool:
        with locked(lock, "it"):
            waiting = pool.submit(wait_for_it)
            assert refused.wait(60)
        assert waiting.result()


def test_a_file_system_without_locks_is_written_with_a_warning(tmp_path, monkeypatch, capsys):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    out = tmp_path / "out"
    with resumable_output(out, RECORD) as work:
        (work.output / "a").write_text("1")
    assert names(tmp_path) == ["out", "out/a"]
    assert "out.lock cannot be locked (No locks available): start no" in capsys.readouterr().err


def test_two_threads_may_write_one_file(tmp_path):
    """As two calls of a worker do that reach the end of one shard."""
    both = threading.Barrier(2)

    def write(text):
        with atomic_file(tmp_path / "end.json", tmp_path) as partial:
            partial.write_text(text)
            both.wait(timeout=60)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, ["same", "same"]))
    assert [p.name for p in tmp_path.iterdir()] == ["end.json"]
    assert (tmp_path / "end.json").read_text() == "same"
