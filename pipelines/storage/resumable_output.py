"""The folder of an unfinished job, which the same job continues after a kill at any moment.

OUTPUT.partial holds record.json, which identifies the job, and a folder named after that record. In
it are `output`, which becomes OUTPUT when the job is done, and `scratch`. Files are written in
scratch under a name of their writer and renamed when they are complete. A worker that outlives its
killed driver for a moment therefore does no harm: a file that it still renames is the same that the
next run would write, and the partial folder of another job has no folder of its name.
"""

from __future__ import annotations

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
from typing import Any

from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout

from cotbert_core import __version__
from cotbert_core.errors import ReadError, UserError
from cotbert_core.files import require_replaceable, write_json
from cotbert_core.messages.full_disk import keep_deleted
from cotbert_core.messages.redaction import without_credentials
from pipelines.runtime.progress import say
from pipelines.runtime.ray_log import LOG_FILE
from pipelines.storage.output_folder import (
    CONTINUE,
    QUEUE_FILES,
    RUN_FILE,
    changed_in_words,
    earlier_run,
)

RECORD_FILE = "record.json"
# Ends the name of a folder of work that is being deleted.
DELETED = ".deleted"


@dataclass(frozen=True)
class ResumableOutput:
    """The folders of an unfinished job.

    before: whether an earlier run left work in them. discarded: ids of the MLflow runs of other
    jobs, whose work was in the way.
    """

    output: Path
    scratch: Path
    before: bool
    discarded: tuple[str, ...] = ()

    @property
    def final(self) -> Path:
        """The path of `output` when the job is done."""
        partial = self.output.parent.parent
        return partial.with_name(partial.name.removesuffix(".partial"))


@contextmanager
def resumable_output(
    output: Path, record: Mapping[str, Any], paid: bool = False
) -> Iterator[ResumableOutput]:
    """Give the folders to work in; they become `output` when the `with` block ends without error.

    record: everything that two runs of the same job have in common, as JSON values. If the block
    ends without work (a file that is not empty) or with a UserError other than a ReadError, nothing
    is left; after any other error the same job continues the work, and another job discards it.
    paid: the work costs more than time, so it is always kept and never discarded. Raises UserError
    if paid work of another job, or a folder that no job wrote, is in the way, or if another process
    writes the same output.
    """
    record = without_credentials(record)  # it is written to a file, and inputs may be URIs
    partial = output.with_name(output.name + ".partial")
    with locked_output(output):
        require_replaceable(output)
        work = _enter(partial, record, paid)
        try:
            yield work
        except BaseException as error:
            is_mistake = isinstance(error, UserError) and not isinstance(error, ReadError)
            if not _holds_work(partial) or (is_mistake and not paid):
                keep_deleted(error, partial)
                with suppress(OSError):
                    _delete(partial)
            elif isinstance(error, KeyboardInterrupt):
                raise KeyboardInterrupt(CONTINUE) from None
            raise
        shutil.rmtree(work.scratch, ignore_errors=True)
        if output.exists():
            output.rmdir()
        work.output.rename(output)
        with suppress(OSError):
            _delete(partial)


def remove_leftover(output: Path) -> None:
    """Remove what a job that was killed just after `output` appeared has left beside it."""
    if not _holds_work(partial := output.with_name(output.name + ".partial")):
        shutil.rmtree(partial, ignore_errors=True)


def _enter(partial: Path, record: Mapping[str, Any], paid: bool) -> ResumableOutput:
    """Return the folders for this record: the existing ones, otherwise new ones."""
    text = json.dumps(record, sort_keys=True)
    home = partial / hashlib.sha256(text.encode()).hexdigest()[:16]
    discarded: tuple[str, ...] = ()
    if partial.exists() and not home.is_dir():
        discarded = _clear(partial, json.loads(text), paid)
    work = ResumableOutput(home / "output", home / "scratch", _holds_work(home), discarded)
    # First of all: a folder without it is treated as not written by a job.
    write_json(partial / RECORD_FILE, record)
    work.scratch.mkdir(parents=True, exist_ok=True)
    work.output.mkdir(exist_ok=True)
    for left in work.scratch.glob("*.tmp"):
        left.unlink()
    return work


def _clear(partial: Path, record: Mapping[str, Any], paid: bool) -> tuple[str, ...]:
    """Remove the work of another job and return its MLflow runs; UserError if it was paid for."""
    files = [path.name for path in partial.iterdir()]
    if not any(name.startswith(RECORD_FILE) for name in files) and files:
        raise UserError(
            f"{str(partial)!r} was not written by {record['job']}, which needs a folder of this "
            "name: move it, or give another output"
        )
    runs = [earlier_run(file.parent) for file in partial.glob(f"*/scratch/{RUN_FILE}")]
    for left in partial.glob(f"*{DELETED}"):
        shutil.rmtree(left)
    if _holds_work(partial):
        changed = changed_in_words(partial / RECORD_FILE, record)
        if paid:
            raise UserError(
                f"{str(partial)!r} holds the work of an unfinished job with other settings "
                f"({changed} differ): give the same settings or another output, or remove the "
                "folder if its work is not needed"
            )
        say(f"discarding {partial}, the work of an unfinished job with other {changed}")
    _delete(partial)
    return tuple(filter(None, runs))


def _delete(partial: Path) -> None:
    """Delete the folder of an unfinished job, its record last.

    The work is renamed first: the job that it belongs to would continue what a kill leaves of it.
    """
    for home in [path for path in partial.iterdir() if path.is_dir()]:
        shutil.rmtree(home.rename(home.with_name(home.name + DELETED)))
    shutil.rmtree(partial)


def _holds_work(folder: Path) -> bool:
    """Return whether a folder has any file that is not empty and does not just identify the job."""
    no_work = {RUN_FILE, LOG_FILE, *QUEUE_FILES}
    names = (path for path in folder.rglob("*") if path.is_file() and path.name not in no_work)
    return any(path.stat().st_size for path in names if not path.name.startswith(RECORD_FILE))


@contextmanager
def atomic_file(path: Path, scratch: Path) -> Iterator[Path]:
    """Give a name in `scratch` to write to; the file becomes `path` when the `with` block ends
    without error."""
    writer = f"{socket.gethostname()}-{os.getpid()}-{threading.get_ident()}"
    partial = scratch / f"{path.name}.{writer}.tmp"
    yield partial
    partial.replace(path)


def write_json_atomic(path: Path, value: Any) -> None:
    """Write a small JSON file into a scratch folder, completely or not at all."""
    with atomic_file(path, path.parent) as partial:
        partial.write_text(json.dumps(value), encoding="utf-8")


def versions() -> dict[str, str]:
    """Return the versions on which the bytes of corpora and embeddings depend."""
    import pyarrow

    return {"cotbert": __version__, "pyarrow": pyarrow.__version__}


def locked_output(output: Path, patience: float = 0.0) -> AbstractContextManager[None]:
    """Lock an output folder by a file next to it. patience: seconds to wait for the lock."""
    return locked(output.with_name(output.name + ".lock"), f"output {str(output)!r}", patience)


@contextmanager
def locked(path: Path, what: str, patience: float = 0.0) -> Iterator[None]:
    """Hold the lock file `path` during the `with` block.

    Raises UserError if another process still has it after `patience` seconds. The system releases
    the lock of a process that ends in any way. On a file system without locks nothing is locked.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock: BaseFileLock = FileLock(path, timeout=patience)
    try:
        lock.acquire()
    except Timeout:
        raise UserError(
            f"{what} is being written by {_owner(path)}: wait for it, or give another folder"
        ) from None
    except OSError as error:
        say(f"warning: {path} cannot be locked ({error.strerror}): start no second job there")
    with suppress(OSError):
        if not isinstance(lock, SoftFileLock):  # which writes the same lines
            path.write_text(f"{os.getpid()}\n{socket.gethostname()}\n", encoding="utf-8")
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()  # before the release: a process that waits for it then makes a new one
        lock.release()


def _owner(path: Path) -> str:
    """Return in words the process that has a lock."""
    try:
        process, host = path.read_text(encoding="utf-8").split("\n")[:2]
    except (OSError, ValueError):
        return "another process"
    return f"process {process} on {host}"
