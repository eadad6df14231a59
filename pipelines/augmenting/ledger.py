"""An append-only ledger of rewrites, written as they arrive, so a killed job pays for none twice.

There is a file for each part of the corpus, with a JSON line per row. An incomplete line of a
killed job is ignored.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from pipelines.storage.resumable_output import locked

# Interval of fsync: a killed process loses nothing, a power cut at most this many seconds.
SYNC_SECONDS = 1.0
# Maximum wait for the lock: a killed driver's worker may write for a few more seconds.
LOCK_SECONDS = 60.0


@dataclass(frozen=True)
class Rewrite:
    """The rewrite of a row: a text, or None with the reason of the failure.

    cut: whether the source was truncated to the model's limit. tokens_in, tokens_out: numbers of
    tokens paid for over all attempts.
    """

    id: int
    text: str | None
    failure: str = ""
    cut: bool = False
    tokens_in: int = 0
    tokens_out: int = 0

    def line(self) -> bytes:
        """Return the JSON line, without default values."""
        given = {k: v for k, v in vars(self).items() if k in ("id", "text") or v}
        return json.dumps(given, ensure_ascii=False).encode() + b"\n"


def read_ledger(path: Path) -> dict[int, Rewrite]:
    """Return the first rewrite of each id in a ledger; empty if the file does not exist."""
    found: dict[int, Rewrite] = {}
    for line in path.read_bytes().split(b"\n")[:-1] if path.is_file() else ():
        with suppress(ValueError, TypeError):  # a line that is no rewrite
            rewrite = Rewrite(**json.loads(line))
            found.setdefault(rewrite.id, rewrite)
    return found


class RewriteLedger:
    """A ledger that this process has open for writing."""

    def __init__(self, file: BinaryIO, rows: dict[int, Rewrite]) -> None:
        self._file = file
        self.rows = rows
        self._synced = time.monotonic()

    def add(self, rewrites: Iterable[Rewrite]) -> None:
        """Append the rewrites of rows without one, in a single write."""
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
    """Open the new or existing ledger at `path`, without an incomplete last line.

    Raises UserError if another process still has it open after `wait` seconds.
    """
    lock = locked(path.with_name(f"{path.name}.lock"), repr(str(path)), wait)
    with lock, path.open("ab") as file:
        content = path.read_bytes()
        file.truncate(content.rfind(b"\n") + 1)
        ledger = RewriteLedger(file, read_ledger(path))
        yield ledger
        ledger.sync()
