"""Rewrites on the disk as they come, so that a job killed at any moment pays for none again.

A file for each part of the corpus, one JSON line a row. A line is whole or, cut by a kill, as if
it had never been; nothing in the file is ever changed.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from cotbert_core.errors import UserError
from pipelines.storage.resumable_output import try_lock

# The system keeps what a killed process wrote; only a power cut needs more, and costs this much.
SYNC_SECONDS = 1.0
# A worker whose driver was killed lives on for some seconds, and may be writing still.
LOCK_SECONDS = 60.0


@dataclass(frozen=True)
class Rewrite:
    """What has become of a row: a text, or None with the failure that left it without.

    cut: the source was longer than the model reads. tokens_in, tokens_out: what was paid for,
    all tries together.
    """

    id: int
    text: str | None
    failure: str = ""
    cut: bool = False
    tokens_in: int = 0
    tokens_out: int = 0

    def line(self) -> bytes:
        """Short: what is as by default is left out."""
        given = {k: v for k, v in vars(self).items() if k in ("id", "text") or v}
        return json.dumps(given, ensure_ascii=False).encode() + b"\n"


def read_ledger(path: Path) -> dict[int, Rewrite]:
    """The rewrites in a ledger by their ids, the first of each; none where there is no file."""
    found: dict[int, Rewrite] = {}
    for line in path.read_bytes().split(b"\n")[:-1] if path.is_file() else ():
        rewrite = _parsed(line)
        if rewrite is not None:
            found.setdefault(rewrite.id, rewrite)
    return found


def _parsed(line: bytes) -> Rewrite | None:
    try:
        values: dict[str, Any] = json.loads(line)
        return Rewrite(**values)
    except (ValueError, TypeError):
        return None


class RewriteLedger:
    """A ledger open for writing by one process alone."""

    def __init__(self, file: BinaryIO, rows: dict[int, Rewrite]) -> None:
        self._file = file
        self.rows = rows
        self._synced = time.monotonic()

    def add(self, rewrites: Iterable[Rewrite]) -> None:
        """Keep rewrites of rows that have none yet, in one write."""
        new = [rewrite for rewrite in rewrites if rewrite.id not in self.rows]
        self._file.write(b"".join(rewrite.line() for rewrite in new))
        self._file.flush()
        self.rows.update((rewrite.id, rewrite) for rewrite in new)
        if time.monotonic() - self._synced > SYNC_SECONDS:
            self.sync()

    def sync(self) -> None:
        os.fsync(self._file.fileno())
        self._synced = time.monotonic()


@contextmanager
def open_ledger(path: Path, wait: float = LOCK_SECONDS) -> Iterator[RewriteLedger]:
    """The ledger at `path`, new or with what it holds; a cut last line is taken off.

    UserError when another process still writes to it after `wait` seconds.
    """
    with path.open("ab") as file:
        _lock(file, path, wait)
        content = path.read_bytes()
        file.truncate(content.rfind(b"\n") + 1)
        ledger = RewriteLedger(file, read_ledger(path))
        yield ledger
        ledger.sync()


def _lock(file: BinaryIO, path: Path, wait: float) -> None:
    until = time.monotonic() + wait
    while not try_lock(file):
        if time.monotonic() > until:
            raise UserError(
                f"{str(path)!r} is being written by another process: wait for it or end it"
            )
        time.sleep(0.2)
