"""Write rewrites to disk as they arrive, so a job killed at any moment pays for none again.

There is one file for each part of the corpus, with one JSON line per row. A line that a kill cut
short is ignored; lines are never changed.
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

# The system keeps what a killed process wrote; a power cut loses at most this many seconds.
SYNC_SECONDS = 1.0
# The worker of a killed driver may live and write for some more seconds.
LOCK_SECONDS = 60.0


@dataclass(frozen=True)
class Rewrite:
    """The rewrite of a row: a text, or None with the reason of the failure.

    cut: whether the source was longer than the model reads. tokens_in, tokens_out: tokens that were
    paid for in all tries.
    """

    id: int
    text: str | None
    failure: str = ""
    cut: bool = False
    tokens_in: int = 0
    tokens_out: int = 0

    def line(self) -> bytes:
        """Return the JSON line, without values that equal their defaults."""
        given = {k: v for k, v in vars(self).items() if k in ("id", "text") or v}
        return json.dumps(given, ensure_ascii=False).encode() + b"\n"


def read_ledger(path: Path) -> dict[int, Rewrite]:
    """Return the first rewrite of each id in a ledger; none if there is no file."""
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
    """A ledger that one process has open for writing."""

    def __init__(self, file: BinaryIO, rows: dict[int, Rewrite]) -> None:
        self._file = file
        self.rows = rows
        self._synced = time.monotonic()

    def add(self, rewrites: Iterable[Rewrite]) -> None:
        """Append the rewrites of rows that have none yet, in one write."""
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
    """Open the ledger at `path`, new or existing; a last line that was cut short is removed.

    Raises UserError if another process still writes to it after `wait` seconds.
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
