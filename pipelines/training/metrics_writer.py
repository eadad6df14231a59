"""Write a run's metrics file: rank 0 appends a line per row, in place.

The driver follows the file (pipelines.training.metrics_follower). Appending costs a step some
microseconds, where a call to another process costs a millisecond. The file needs storage that
appends to a file and renames it at once: a local disk, NFS, Lustre. Object stores that are mounted
as folders rewrite the whole file at each append; the output folder cannot lie there, where
checkpoints and locks would fail too, so there is no second way for them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from io import FileIO
from pathlib import Path


class MetricsWriter:
    """Appends rows to a metrics file; whole lines, each handed to the system at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: FileIO | None = None
        self._pending = b""

    def start(self, step: int) -> None:
        """Drop the rows after `step`, which are done again; step 0 drops all rows.

        The file is replaced, not cut: a worker of an earlier attempt that is still alive has the
        old file open, and nobody reads what it appends there.
        """
        partial = self._path.with_name(f"{self._path.name}.partial")
        with partial.open("wb") as file:
            file.writelines(_lines_until(self._path, step))
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self._path)
        self._file = FileIO(self._path, "a")

    def append(self, row: Mapping[str, float]) -> None:
        """Append a row. If the disk refuses it, the run continues and the next call writes it."""
        self._pending += json.dumps(row).encode() + b"\n"
        with suppress(OSError):
            self._write()

    def sync(self) -> None:
        """Force all rows to the disk, or raise OSError. A checkpoint is written after this, so the
        rows of its steps outlive a machine that loses its power."""
        assert self._file is not None
        try:
            self._write()
            os.fsync(self._file.fileno())
        except OSError as error:
            message = f"{str(self._path)!r} cannot be written ({error})"
            raise OSError(error.errno, message, str(self._path)) from error

    def close(self) -> None:
        """Write what is left, where the disk takes it, and close the file."""
        if self._file is not None:
            with suppress(OSError):
                self._write()
            self._file.close()

    def _write(self) -> None:
        """Write the pending bytes; a full disk may take the first part of them."""
        assert self._file is not None
        while self._pending:
            written = self._file.write(self._pending)
            self._pending = self._pending[written:]


def _lines_until(path: Path, step: int) -> Iterator[bytes]:
    """The whole lines of the steps up to `step`; none for step 0, whose dev check is done again."""
    if not step or not path.is_file():
        return
    with path.open("rb") as file:
        for line in file:
            # A line that a kill or a power loss damaged belongs to no step of a checkpoint.
            with suppress(ValueError):
                if line.endswith(b"\n") and json.loads(line)["step"] <= step:
                    yield line
