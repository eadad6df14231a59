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
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep, time
from typing import IO, Any, TextIO

from cotbert_core.errors import UserError
from cotbert_core.files import require_empty, write_json
from cotbert_core.messages.redaction import without_credentials
from pipelines.runtime.progress import say
from pipelines.runtime.ray_log import LOG_FILE
from pipelines.storage.output_folder import OUTBOX_FILES, RUN_FILE, changed_settings

RECORD_FILE = "record.json"
# The lock is touched every 10 s; one of another machine that was not for a minute is stale.
TOUCH_SECONDS, STALE_SECONDS, POLL_SECONDS = 10.0, 60.0, 0.2


@dataclass(frozen=True)
class ResumableOutput:
    """Where a job works. before: whether an earlier run of the same job left work here."""

    output: Path
    scratch: Path
    before: bool

    @property
    def final(self) -> Path:
        """What `output` is called when the job is done."""
        partial = self.output.parent.parent
        return partial.with_name(partial.name.removesuffix(".partial"))


@contextmanager
def resumable_output(
    output: Path, record: Mapping[str, Any], paid: bool = False
) -> Iterator[ResumableOutput]:
    """The place to work in; it becomes `output` when the block ends well.

    record: all that two runs of the same job have in common, as JSON takes it. An end without work
    (a file that is not empty) leaves nothing. After a UserError nothing is left either, after
    anything else the same job goes on, and another discards it. paid: work that costs more than
    time is kept after a UserError too, and never discarded. UserError when such work of another
    job, or a folder that is no job's, is in the way, or another process writes the same output.
    """
    require_empty(output)
    record = without_credentials(record)  # it is written, and inputs may be addresses
    partial = output.with_name(output.name + ".partial")
    with locked_output(output):
        require_empty(output)  # another run may have finished while this one came to the lock
        work = _enter(partial, record, paid)
        try:
            yield work
        except BaseException as error:
            if not _holds_work(partial) or (isinstance(error, UserError) and not paid):
                shutil.rmtree(partial, ignore_errors=True)
            elif isinstance(error, KeyboardInterrupt):
                raise KeyboardInterrupt("the same command goes on with what is done") from None
            raise
        shutil.rmtree(work.scratch, ignore_errors=True)
        if output.exists():
            output.rmdir()
        work.output.rename(output)
        shutil.rmtree(partial, ignore_errors=True)


def _enter(partial: Path, record: Mapping[str, Any], paid: bool) -> ResumableOutput:
    """The partial folder of this record: the one that is there, else a new one."""
    text = json.dumps(record, sort_keys=True)
    home = partial / hashlib.sha256(text.encode()).hexdigest()[:16]
    if partial.exists() and not home.is_dir():
        _clear(partial, json.loads(text), paid)
    work = ResumableOutput(home / "output", home / "scratch", _holds_work(home))
    # First of all: a folder without it is taken for somebody else's.
    write_json(partial / RECORD_FILE, record)
    work.scratch.mkdir(parents=True, exist_ok=True)
    work.output.mkdir(exist_ok=True)
    for left in work.scratch.glob("*.tmp"):
        left.unlink()
    return work


def _clear(partial: Path, record: Mapping[str, Any], paid: bool) -> None:
    """Away with what another job left, unless that was paid for."""
    files = [path.name for path in partial.iterdir()]
    if not any(name.startswith(RECORD_FILE) for name in files) and files:
        raise UserError(
            f"{str(partial)!r} is in the way and was not written by {record['job']}: move it, or "
            "give another output"
        )
    if _holds_work(partial):
        changed = ", ".join(changed_settings(partial / RECORD_FILE, record))
        if paid:
            raise UserError(
                f"{str(partial)!r} holds what an unfinished job with other settings made "
                f"({changed} differ): give the same settings or another output, or remove it if "
                "that may be lost"
            )
        say(f"discarding {partial}, which a job with other {changed} left")
    shutil.rmtree(partial)


def _holds_work(folder: Path) -> bool:
    """Whether any file is there beside those that only say which job it is."""
    told = {RUN_FILE, LOG_FILE, *OUTBOX_FILES}
    names = (path for path in folder.rglob("*") if path.is_file() and path.name not in told)
    return any(path.stat().st_size for path in names if not path.name.startswith(RECORD_FILE))


@contextmanager
def atomic_file(path: Path, scratch: Path) -> Iterator[Path]:
    """A name in `scratch` to write to; the file becomes `path` when the block ends well."""
    partial = scratch / f"{path.name}.{socket.gethostname()}-{os.getpid()}.tmp"
    yield partial
    partial.replace(path)


def locked_output(output: Path, patience: float = 0.0) -> AbstractContextManager[None]:
    """`locked` of an output folder, by a file beside it."""
    return locked(output.with_name(output.name + ".lock"), f"output {str(output)!r}", patience)


@contextmanager
def locked(path: Path, what: str, patience: float = 0.0) -> Iterator[None]:
    """The lock file `path` for the length of the block; UserError when another process still has
    it after so many seconds.

    The lock of a process that was killed is taken over: on this machine at once, since the system
    gave it up with the process; of another machine after STALE_SECONDS without a sign of life.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    file = _take(path, what, monotonic() + patience)
    done = threading.Event()
    threading.Thread(target=_touch, args=(path, done), daemon=True).start()
    try:
        yield
    finally:
        done.set()
        path.unlink(missing_ok=True)
        file.close()


def _take(path: Path, what: str, until: float) -> TextIO:
    while True:
        file = path.open("a+", encoding="utf-8")
        held = not try_lock(file)
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
            if monotonic() < until:
                sleep(POLL_SECONDS)
                continue
            raise UserError(
                f"{what} is being written by {owner or 'another process'}: wait for it, or give "
                "another folder" + ("; if it has ended, try again in a minute" if elsewhere else "")
            )
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        return file


def try_lock(file: IO[Any]) -> bool:
    """Whether this process now holds the file alone; it does until it ends or closes the file."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _touch(path: Path, done: threading.Event) -> None:
    while not done.wait(TOUCH_SECONDS):
        with suppress(OSError):
            os.utime(path)
