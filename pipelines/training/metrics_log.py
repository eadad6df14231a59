"""Read a run's metrics file, which has a line for each training step and each dev check, and the
dev scores of several runs."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.recording.dev_metric import metric_in

METRICS_FILE = "metrics.jsonl"
Row = dict[str, float]


@dataclass(frozen=True)
class MetricsLog:
    """The metrics of a run. rows: by step. batch_size: sentences per step over all workers."""

    rows: dict[int, Row]
    batch_size: int

    @property
    def last_step(self) -> int:
        return max(self.rows)

    def rate(self) -> float:
        """Sentences per second over all steps, without the dev checks."""
        return sentence_rate(self._values("step_seconds"), self.batch_size)

    def median(self, name: str) -> float:
        """Return the median of a metric over the steps that have it; nan if none has."""
        values = self._values(name)
        return statistics.median(values) if values else math.nan

    def _values(self, name: str) -> list[float]:
        return [row[name] for row in self.rows.values() if name in row]


def sentence_rate(step_seconds: Iterable[float], batch_size: int) -> float:
    """Return sentences per second from the seconds of each step; nan without steps."""
    seconds = list(step_seconds)
    return batch_size * len(seconds) / sum(seconds) if seconds else math.nan


def read_rows(path: Path) -> dict[int, Row]:
    """Return the numbers of each step in a metrics file, without an incomplete last line.

    A file of an earlier version may have a step twice, repeated after a restart; the later one is
    used.
    """
    rows: dict[int, Row] = {}
    whole, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
    for line in whole.splitlines():
        row = json.loads(line)
        step = int(row["step"])
        rows[step] = rows.get(step, {}) | row
    return rows


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return mean, spread (sample standard deviation, 0 for one value), min and max over several
    seeds (PromptBERT, Table 10); all NaN if a value is, as the score of equal cosines is."""
    if any(map(math.isnan, values)):
        return dict.fromkeys(("mean", "spread", "min", "max"), math.nan)
    return {
        "mean": statistics.fmean(values),
        "spread": statistics.stdev(values) if len(values) > 1 else 0.0,
        "min": min(values),
        "max": max(values),
    }


def scores_of(results: Sequence[dict[str, Any]]) -> list[float]:
    """Return the dev score of each run."""
    return [float(result[metric_in(result).name]) for result in results]
