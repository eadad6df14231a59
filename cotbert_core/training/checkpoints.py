"""Checkpoints: the complete state of a run after a step, written atomically.

A checkpoint is a folder `step-00000010` with the state and a note of its size and checksum. It is
written under another name, flushed to disk and renamed, so a kill or a full disk leaves the
previous checkpoint intact. A checkpoint that was damaged later is reported and skipped.

A worker whose driver or node was lost may continue for a while. So each start of a run's workers is
an attempt, and only the latest attempt may write: an earlier one checks this before it renames its
checkpoint.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import warnings
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import torch

from cotbert_core.errors import UserError
from cotbert_core.files import read_json, write_json, write_text
from cotbert_core.messages.full_disk import keep_deleted, means_full_disk
from cotbert_core.messages.printable import printable
from cotbert_core.training.dev_scores import sort_key

STATE_FILE, NOTE_FILE, ATTEMPT_FILE = "state.pt", "checkpoint.json", "attempt"
# Number of newest checkpoints kept besides the best one; the second is a fallback.
NEWEST = 2
CHUNK_BYTES = 1 << 22


class SupersededError(Exception):
    """Another attempt of the same run has started; this one stops writing."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on disk. score: score of its dev check; higher is better."""

    path: Path
    step: int
    score: float

    def damage(self) -> str | None:
        """Return a description of the state's damage, or None if it is intact; reads it once."""
        note, file = read_json(self.path / NOTE_FILE), self.path / STATE_FILE
        if not file.is_file():
            return f"{STATE_FILE} is missing"
        if not {"bytes", "crc32"} <= note.keys():
            return f"{NOTE_FILE} is incomplete"
        size = file.stat().st_size
        if size != note["bytes"]:
            return f"{STATE_FILE} has {size} bytes and had {note['bytes']}"
        return None if checksum(file) == note["crc32"] else f"{STATE_FILE} was changed"

    def load(self, *, mapped: bool = False) -> dict[str, Any]:
        """Return the state, on the CPU.

        mapped: read each part on first use, so that loading only the weights does not read the
        optimizer's state, which is twice as large; the file must not be deleted meanwhile.
        """
        file = self.path / STATE_FILE
        return dict(torch.load(file, map_location="cpu", weights_only=True, mmap=mapped))


def begin_attempt(folder: Path) -> str:
    """Start a new attempt and return its name.

    Earlier attempts can no longer write checkpoints in this folder, and their incomplete ones are
    deleted.
    """
    attempt = secrets.token_hex(8)
    write_text(folder / ATTEMPT_FILE, attempt)
    for left in folder.glob("step-*.partial"):
        shutil.rmtree(left, ignore_errors=True)
    return attempt


def write_checkpoint(
    folder: Path, step: int, score: float, state: dict[str, Any], attempt: str | None = None
) -> Checkpoint:
    """Write a checkpoint, then delete those that are neither among the newest nor the best.

    After OSError or SupersededError the other checkpoints are unchanged. attempt: from
    `begin_attempt`; None if no other process writes here.
    """
    path = folder / f"step-{step:08}"
    partial = path.with_name(f"{path.name}.{attempt or 'own'}.partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        size, crc = _write_state(partial / STATE_FILE, state)
        note = {"step": step, "score": score, "bytes": size, "crc32": crc}
        write_json(partial / NOTE_FILE, note)
        check_attempt(folder, attempt)
        shutil.rmtree(path, ignore_errors=True)  # a damaged checkpoint of an earlier attempt
        partial.rename(path)
    except (OSError, RuntimeError) as error:  # torch raises RuntimeError for a full disk
        number = errno.ENOSPC if means_full_disk(error) else getattr(error, "errno", None)
        message = f"checkpoint {str(path)!r} cannot be written ({error})"
        refused = OSError(number or errno.EIO, message, str(path))
        keep_deleted(refused, partial)
        raise refused from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    _prune(folder)
    return Checkpoint(path, step, score)


def _write_state(file: Path, state: dict[str, Any]) -> tuple[int, int]:
    """Write the state, flush it to disk, and return its size in bytes and its CRC-32.

    Without fsync a power failure may keep the file's name and lose its contents.
    """
    with file.open("wb") as stream:
        counted = _CheckedStream(stream)
        torch.save(state, cast(IO[bytes], counted))
        if counted.error is not None:
            raise counted.error
        stream.flush()
        os.fsync(stream.fileno())
    return counted.size, counted.crc


class _CheckedStream:
    """A file for writing that computes its size and CRC-32, so the 1.3 GB are not read again.

    error: the first error of the file. It is stored, not raised: torch's archive writer is C++ and
    would turn it into a SystemError that names neither the disk nor the file.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.size = self.crc = 0
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        if self.error is None:
            try:
                self._stream.write(data)
            except OSError as error:
                self.error = error
        self.size += size
        self.crc = zlib.crc32(data, self.crc)
        return size

    def flush(self) -> None:
        """Do nothing: the caller flushes the file."""


def check_attempt(folder: Path, attempt: str | None) -> None:
    """Raise SupersededError if a newer attempt has begun."""
    if attempt is not None and (folder / ATTEMPT_FILE).read_text(encoding="utf-8") != attempt:
        raise SupersededError(
            f"a newer attempt writes the checkpoints in {str(folder)!r}: this one stops"
        )


def checkpoints(folder: Path) -> list[Checkpoint]:
    """Return all checkpoints in a folder, the oldest first; their states are not checked."""
    found = []
    for file in sorted(folder.glob(f"step-????????/{NOTE_FILE}")):
        try:
            note = read_json(file)
            found.append(Checkpoint(file.parent, int(note["step"]), float(note["score"])))
        except (UserError, KeyError, TypeError, ValueError):
            _warn(file.parent, f"{NOTE_FILE} cannot be read")
    return found


def newest(folder: Path) -> Checkpoint | None:
    """Return the newest undamaged checkpoint; show a warning for damaged ones."""
    return _first_whole(checkpoints(folder)[::-1])


def best(folder: Path) -> Checkpoint | None:
    """Return the undamaged checkpoint with the highest score, the earliest of equals.

    Shows a warning for damaged ones.
    """
    return _first_whole(_by_score(checkpoints(folder)))


def _by_score(found: Sequence[Checkpoint]) -> list[Checkpoint]:
    """Return checkpoints sorted by score, the best first; equal scores keep their order."""
    return sorted(found, key=lambda checkpoint: -sort_key(checkpoint.score))


def _first_whole(found: Sequence[Checkpoint]) -> Checkpoint | None:
    for checkpoint in found:
        damage = checkpoint.damage()
        if damage is None:
            return checkpoint
        _warn(checkpoint.path, damage)
    return None


def _warn(path: Path, damage: str) -> None:
    message = f"checkpoint {str(path)!r} is damaged ({damage}): falling back to another"
    warnings.warn(printable(message), stacklevel=4)


def _prune(folder: Path) -> None:
    found = checkpoints(folder)
    kept = [*found[-NEWEST:], *_by_score(found)[:1]]
    for checkpoint in found:
        if checkpoint not in kept:
            # The next attempt deletes what a kill leaves of it: a state without a note is none.
            pruned = checkpoint.path.with_name(f"{checkpoint.path.name}.pruned.partial")
            with suppress(OSError):
                shutil.rmtree(checkpoint.path.rename(pruned))


def checksum(file: Path) -> int:
    """Return the CRC-32 of a file, which detects damage but not manipulation."""
    crc = 0
    with file.open("rb") as stream:
        while block := stream.read(CHUNK_BYTES):
            crc = zlib.crc32(block, crc)
    return crc
