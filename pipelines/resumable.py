"""A folder that a killed job can go on with: its work is never thrown away unasked."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from cotbert_core.errors import UserError
from cotbert_core.files import write_json
from pipelines.outputs import RUN_FILE, SETTINGS_FILE, changed_settings, check_free
from pipelines.progress import say

LOCK_FILE = "lock"


@contextmanager
def resumable_folder(
    path: Path, what: str, record: Mapping[str, Any], scratch: str
) -> Iterator[Path]:
    """A folder PATH.partial that becomes PATH when the block ends well, and else stays for the
    same job to go on with if it holds work.

    what: the job in a word. record: all that a job that goes on must have in common with the one
    that began. scratch: name of a folder in it, made here and gone at the end; there is work once
    a file in it is not empty. UserError when another job's work is there, or another process is
    at work.
    """
    path = check_free(path)
    partial = path.with_name(path.name + ".partial")
    partial.mkdir(parents=True, exist_ok=True)
    with (partial / LOCK_FILE).open("ab") as lock:
        if not try_lock(lock):
            raise UserError(f"another process is writing {str(path)!r}: wait for it or end it")
        _begin(partial, what, record, scratch)
        (partial / scratch).mkdir(exist_ok=True)
        try:
            yield partial
        except BaseException:
            if not _holds_work(partial / scratch):
                shutil.rmtree(partial, ignore_errors=True)
            raise
        if path.exists():
            path.rmdir()
        partial.rename(path)
    for name in (LOCK_FILE, SETTINGS_FILE, RUN_FILE):
        (path / name).unlink(missing_ok=True)
    shutil.rmtree(path / scratch, ignore_errors=True)


def _begin(partial: Path, what: str, record: Mapping[str, Any], scratch: str) -> None:
    """Say that the job goes on, or keep the record of a new one."""
    if not (partial / SETTINGS_FILE).is_file():
        others = [
            p.name for p in partial.iterdir() if not p.name.startswith((LOCK_FILE, SETTINGS_FILE))
        ]
        if others:
            raise UserError(
                f"{str(partial)!r} is in the way and was not written by {what}: move it, or give "
                "another output"
            )
    elif _holds_work(partial / scratch):
        changed = changed_settings(partial, record)
        if changed:
            raise UserError(
                f"{str(partial)!r} holds what an unfinished {what} with other settings made "
                f"({', '.join(changed)} differ): give the same settings or another output, or "
                "remove it if that may be lost"
            )
        say(f"going on with what is in {partial}")
        return
    # A job that was killed before its work began has a run of its own in the tracking store.
    (partial / RUN_FILE).unlink(missing_ok=True)
    write_json(partial / SETTINGS_FILE, record)


def _holds_work(scratch: Path) -> bool:
    return any(file.stat().st_size for file in scratch.glob("*"))


def try_lock(file: BinaryIO) -> bool:
    """Whether this process now holds the file alone; it does until it ends or closes the file."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
