"""The metrics file of a run, read back: a line for each training step and for each dev check."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

METRICS_FILE = "metrics.jsonl"
Row = dict[str, float]


@dataclass(frozen=True)
class MetricsLog:
    """All numbers of a run. rows: by step; batch_size: sentences in a step, over all workers."""

    rows: dict[int, Row]
    batch_size: int

    @property
    def last_step(self) -> int:
        return max(self.rows)

    def rate(self) -> float:
        """Sentences a second over all steps, without the dev checks."""
        return sentence_rate(self._values("step_seconds"), self.batch_size)

    def median(self, name: str) -> float:
        """The median of a number over the steps that have it; nan when none has it."""
        values = self._values(name)
        return statistics.median(values) if values else math.nan

    def _values(self, name: str) -> list[float]:
        return [row[name] for row in self.rows.values() if name in row]


def read_log(path: Path, batch_size: int) -> MetricsLog:
    """Read the metrics file of a run that has ended."""
    return MetricsLog(read_rows(path), batch_size)


def sentence_rate(step_seconds: Iterable[float], batch_size: int) -> float:
    """Sentences a second in steps that took so long; nan without steps."""
    seconds = list(step_seconds)
    return batch_size * len(seconds) / sum(seconds) if seconds else math.nan


def read_rows(path: Path) -> dict[int, Row]:
    """The numbers of each step of a metrics file, without a last line that is being written.

    A file of an earlier version may hold a step twice, done again after a restart: the later
    numbers count.
    """
    rows: dict[int, Row] = {}
    whole, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
    for line in whole.splitlines():
        row = json.loads(line)
        step = int(row["step"])
        rows[step] = rows.get(step, {}) | row
    return rows
