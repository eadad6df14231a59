"""A job's folder under way, which the same job goes on with after a kill at any moment.

OUTPUT.partial holds record.json, by which one job is told from another, and a folder named after
that record: in it `output`, which becomes OUTPUT when the job is done, and `scratch`. Files are
written in scratch under a name of their writer's own and renamed when whole. A worker that outlives
its killed driver for a moment can so do no harm: what it still renames is what the next run would
write, and in another job's partial folder there is no place of its name.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import Any, TextIO

from cotbert_core.errors import UserError
from cotbert_core.files import check_free, read_json, write_json
from pipelines.progress import say

RECORD_FILE = "record.json"
# The lock is touched every 10 s; one of another machine that was not for a minute is stale.
TOUCH_SECONDS, STALE_SECONDS = 10.0, 60.0


@dataclass(frozen=True)
class Unfinished:
    """Where a job works. before: whether an earlier run of the same job left something here."""

    output: Path
    scratch: Path
    before: bool


@contextmanager
def unfinished(output: Path, record: Mapping[str, Any]) -> Iterator[Unfinished]:
    """The place to work in; it becomes `output` when the block ends well.

    record: all that two runs of the same job have in common, as JSON takes it. What a job of
    another record left is discarded. After a UserError nothing is left; after anything else the
    same job goes on. UserError when another process is writing the same output.
    """
    check_free(output)
    partial = output.with_name(output.name + ".partial")
    with locked(output.with_name(output.name + ".lock"), f"output {str(output)!r}"):
        check_free(output)  # another run may have finished while this one came to the lock
        work = _enter(partial, record)
        try:
            yield work
        except UserError:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        except KeyboardInterrupt:
            raise KeyboardInterrupt("the same command goes on with what is done") from None
        shutil.rmtree(work.scratch, ignore_errors=True)
        if output.exists():
            output.rmdir()
        work.output.rename(output)
        shutil.rmtree(partial, ignore_errors=True)


def _enter(partial: Path, record: Mapping[str, Any]) -> Unfinished:
    """The partial folder of this record: the one that is there, else a new one."""
    text = json.dumps(record, sort_keys=True)
    home = partial / hashlib.sha256(text.encode()).hexdigest()[:16]
    before = home.is_dir()
    if not before and partial.exists():
        say(f"discarding {partial}, which {_difference(partial, json.loads(text))}")
        shutil.rmtree(partial)
    work = Unfinished(home / "output", home / "scratch", before)
    work.scratch.mkdir(parents=True, exist_ok=True)
    work.output.mkdir(exist_ok=True)
    write_json(partial / RECORD_FILE, record)
    for left in work.scratch.glob("*.tmp"):
        left.unlink()
    return work


def _difference(partial: Path, record: dict[str, Any]) -> str:
    try:
        before = read_json(partial / RECORD_FILE)
    except UserError:
        return "does not say what job it is of"
    changed = [key for key in {**before, **record} if before.get(key) != record.get(key)]
    return f"a job with other {', '.join(changed)} left"


@contextmanager
def whole_file(path: Path, scratch: Path) -> Iterator[Path]:
    """A name in `scratch` to write to; the file becomes `path` when the block ends well."""
    partial = scratch / f"{path.name}.{socket.gethostname()}-{os.getpid()}.tmp"
    yield partial
    partial.replace(path)


@contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """The lock file `path` for the length of the block; UserError when another process has it.

    The lock of a process that was killed is taken over: on this machine at once, since the system
    gave it up with the process; of another machine after STALE_SECONDS without a sign of life.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    file = _take(path, what)
    done = threading.Event()
    threading.Thread(target=_touch, args=(path, done), daemon=True).start()
    try:
        yield
    finally:
        done.set()
        path.unlink(missing_ok=True)
        file.close()


def _take(path: Path, what: str) -> TextIO:
    while True:
        file = path.open("a+", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held = False
        except BlockingIOError:
            held = True
        if not held and not (
            path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat())
        ):
            file.close()  # its holder removed it between our opening and our locking it
            continue
        file.seek(0)
        owner = file.read().strip()
        host = owner.rpartition(" on ")[2]
        elsewhere = bool(owner) and host != socket.gethostname()
        if held or (elsewhere and time() - path.stat().st_mtime < STALE_SECONDS):
            file.close()
            raise UserError(
                f"{what} is being written by {owner or 'another process'}: wait for it, or give "
                "another folder" + ("; if it has ended, try again in a minute" if elsewhere else "")
            )
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        return file


def _touch(path: Path, done: threading.Event) -> None:
    while not done.wait(TOUCH_SECONDS):
        with suppress(OSError):
            os.utime(path)
