"""Write a run's metrics file: rank 0 appends a line per row.

The driver follows the file (pipelines.training.metrics_follower). Appending takes microseconds, a
call to another process a millisecond. The file needs storage with appends and atomic renames: a
local disk, NFS, Lustre. Object stores mounted as folders rewrite the whole file at each append; the
output folder cannot be there, since checkpoints and locks would fail too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from io import FileIO
from pathlib import Path


class MetricsWriter:
    """Append rows to a metrics file, as whole lines without buffering."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: FileIO | None = None
        self._pending = b""

    def start(self, step: int) -> None:
        """Drop the rows after `step`, which will be repeated; step 0 drops all rows.

        The file is replaced, not truncated: a worker of an earlier attempt that is still alive only
        appends to the old file.
        """
        partial = self._path.with_name(f"{self._path.name}.partial")
        with partial.open("wb") as file:
            file.writelines(_lines_until(self._path, step))
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self._path)
        self._file = FileIO(self._path, "a")

    def append(self, row: Mapping[str, float]) -> None:
        """Append a row. After a write error the run continues, and the next call writes it."""
        self._pending += json.dumps(row).encode() + b"\n"
        with suppress(OSError):
            self._write()

    def sync(self) -> None:
        """Flush all rows to disk, or raise OSError. It precedes each checkpoint, so the rows of its
        steps survive a power failure."""
        assert self._file is not None
        try:
            self._write()
            os.fsync(self._file.fileno())
        except OSError as error:
            message = f"{str(self._path)!r} cannot be written ({error})"
            raise OSError(error.errno, message, str(self._path)) from error

    def close(self) -> None:
        """Write the pending rows, if possible, and close the file."""
        if self._file is not None:
            with suppress(OSError):
                self._write()
            self._file.close()

    def _write(self) -> None:
        """Write the pending bytes; a full disk may accept only some of them."""
        assert self._file is not None
        while self._pending:
            written = self._file.write(self._pending)
            self._pending = self._pending[written:]


def _lines_until(path: Path, step: int) -> Iterator[bytes]:
    """Yield the complete lines up to `step`; none for step 0, whose dev check is repeated."""
    if not step or not path.is_file():
        return
    with path.open("rb") as file:
        for line in file:
            # A line damaged by a kill or a power failure belongs to no step of a checkpoint.
            with suppress(ValueError):
                if line.endswith(b"\n") and json.loads(line)["step"] <= step:
                    yield line
