"""Follow a run's metrics file on the driver: show new rows as progress and log them to MLflow.

When a worker is lost, the file is truncated to a checkpoint and grows again. Rows of repeated steps
are compared with the reported ones, and only numbers that differ, on CPUs the timings, are sent to
MLflow again.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from cotbert_core.files import read_json, write_json
from pipelines.recording.dev_metric import metric_in
from pipelines.recording.metric_names import LOSS
from pipelines.recording.tracking import Run
from pipelines.runtime.progress import Progress
from pipelines.training.metrics_log import METRICS_FILE, Row, sentence_rate

# Stores the number of bytes of the metrics file that the driver has reported. It is removed when
# all are reported, so without it a resumed run takes the whole metrics file as reported.
REPORTED_FILE = "metrics_reported.json"
# Number of steps of the shown rate's moving average.
RATE_STEPS = 10
# Number of steps whose metrics are remembered, more than a restart repeats. Rows of earlier steps
# are assumed to be unchanged.
REMEMBERED_STEPS = 10_000


class MetricsFollower:
    """Report each row of the metrics file in `folder` once.

    total: number of steps of the run. on_check: called with step and score of every dev check after
    the first step. unit: what a batch_size counts.
    """

    def __init__(
        self,
        run: Run,
        folder: Path,
        batch_size: int,
        total: int,
        on_check: Callable[[int, float], None] | None = None,
        unit: str = "sentences",
    ) -> None:
        self._run, self._batch_size, self._total = run, batch_size, total
        self._on_check, self._unit = on_check, unit
        self._lines = AppendedRows(folder / METRICS_FILE)
        self._reported = folder / REPORTED_FILE
        self._remembered: dict[int, Row] = {}
        self._forgotten = -1
        self._seconds = deque[float](maxlen=RATE_STEPS)
        self._progress: Progress | None = None
        known = read_json(self._reported)["bytes"] if self._reported.is_file() else None
        for row in self._lines.read(known):
            self._changed(row)
        self._note_position()

    def poll(self) -> None:
        """Report the rows since the last call."""
        before, fresh = self._lines.offset, []
        for row in self._lines.read():
            if changed := self._changed(row):
                fresh.append((int(row["step"]), changed))
                self._show(row)
        self._run.steps(fresh)
        if self._lines.offset != before:
            self._note_position()

    def close(self) -> None:
        """Remove the position file after the end of the run."""
        self._reported.unlink(missing_ok=True)

    def _note_position(self) -> None:
        # A driver that is killed before this, or whose disk is full, sends some rows twice.
        with suppress(OSError):
            write_json(self._reported, {"bytes": self._lines.offset})

    def _changed(self, row: Row) -> Row:
        """Return the numbers of a row that were not reported with this value."""
        step = int(row["step"])
        if step <= self._forgotten:
            return {}
        known = self._remembered.setdefault(step, {"step": step})
        changed = {name: value for name, value in row.items() if known.get(name) != value}
        known.update(changed)
        if len(self._remembered) > REMEMBERED_STEPS:
            self._forgotten = next(iter(self._remembered))
            del self._remembered[self._forgotten]
        return changed

    def _show(self, row: Row) -> None:
        step = int(row["step"])
        if self._progress is None:
            self._progress = Progress("train", self._total, "step")
            self._progress.start_at(step)
        metric = metric_in(row)
        if metric.name in row:
            self._progress.show(step, f"{metric.words} {row[metric.name]:.2f}", always=True)
            if self._on_check is not None and step > 0:
                self._on_check(step, float(row[metric.name]))
            return
        self._seconds.append(row["step_seconds"])
        rate = sentence_rate(self._seconds, self._batch_size)
        self._progress.show(step, f"loss {row[LOSS]:.4f}  {rate:,.0f} {self._unit}/s")


class AppendedRows:
    """The rows appended to a file since the last read.

    offset: number of bytes read. If the last line read is no longer at its place, the file was
    truncated or replaced and is read from the beginning.
    """

    def __init__(self, path: Path) -> None:
        self.offset = 0
        self._path, self._last = path, b""

    def read(self, until: int | None = None) -> Iterator[Row]:
        """Yield the new rows, up to byte `until` if it is given.

        A line that is not a complete JSON object is left for the next call: it is being written, or
        bytes reached NFS out of order. Each call reopens the file, since NFS only guarantees to
        show earlier writes after opening it.
        """
        with suppress(OSError), self._path.open("rb") as file:
            file.seek(self.offset - len(self._last))
            if file.read(len(self._last)) != self._last:
                self.offset, self._last = 0, b""
            file.seek(self.offset)
            for line in file:
                end = self.offset + len(line)
                if not line.endswith(b"\n") or (until is not None and end > until):
                    return
                try:
                    row = json.loads(line)
                except ValueError:
                    return
                self.offset, self._last = end, line
                yield row
