"""A run's numbers by step: shown as progress, sent to MLflow, and kept in metrics.jsonl."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path

from cotbert_core.files import write_text
from pipelines.recording.tracking import DEV_SPEARMAN, LOSS, Run
from pipelines.runtime.metrics_queue import MetricRow
from pipelines.runtime.progress import Progress, say

METRICS_FILE = "metrics.jsonl"
# Steps over which the shown rate is taken: enough to be steady, few enough to be of the moment.
RATE_STEPS = 10


class History:
    """rows[step] holds what was told of a step; a resumed run finds earlier steps in the file."""

    def __init__(self, run: Run, path: Path, batch_size: int) -> None:
        self._run, self._path, self._batch_size = run, path, batch_size
        self._progress: Progress | None = None
        if path.is_file():  # a kill may have left the last line half-written
            whole, newline, _ = path.read_text(encoding="utf-8").rpartition("\n")
            write_text(path, whole + newline)
        self.rows = read_rows(path) if path.is_file() else {}

    @property
    def last_step(self) -> int:
        return max(self.rows)

    def hear(self, news: list[MetricRow]) -> None:
        """Take news of some steps from a worker; a resumed one tells all that it told before."""
        for item in news:
            if "warning" in item:
                say(f"warning: {item['warning']}")
        news = [item for item in news if "values" in item and not self._knows(item)]
        with self._path.open("a", encoding="utf-8") as file:
            for item in news:
                row = {"step": item["step"], **item["values"]}
                _keep(self.rows, row)
                file.write(json.dumps(row) + "\n")
                self._show(item["step"], item["total"], item["values"])
        self._run.steps([(item["step"], item["values"]) for item in news])

    def _knows(self, item: MetricRow) -> bool:
        row = self.rows.get(item["step"], {})
        return all(row.get(key) == value for key, value in item["values"].items())

    def rate(self, last: int | None = None) -> float:
        """Sentences a second over the last steps (all by default), dev checks not counted."""
        seconds = [row["step_seconds"] for row in self.rows.values() if "step_seconds" in row]
        seconds = seconds[-last:] if last else seconds
        return self._batch_size * len(seconds) / sum(seconds) if seconds else math.nan

    def median(self, name: str) -> float:
        """Of a number that steps have; nan where none has it."""
        values = [row[name] for row in self.rows.values() if name in row]
        return statistics.median(values) if values else math.nan

    def _show(self, step: int, total: int, values: dict[str, float]) -> None:
        if self._progress is None:
            self._progress = Progress("train", total, "step")
            self._progress.start_at(step)
        if DEV_SPEARMAN in values:
            text = f"dev Spearman {values[DEV_SPEARMAN]:.2f}"
            self._progress.show(step, text, always=True)
        else:
            text = f"loss {values[LOSS]:.4f}  {self.rate(RATE_STEPS):,.0f} sentences/s"
            self._progress.show(step, text)


def read_rows(path: Path) -> dict[int, dict[str, float]]:
    """Step -> its numbers, from a metrics file; a last line that a kill cut short is left out."""
    rows: dict[int, dict[str, float]] = {}
    whole, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
    for line in whole.splitlines():
        _keep(rows, json.loads(line))
    return rows


def _keep(rows: dict[int, dict[str, float]], row: dict[str, float]) -> None:
    """Add what was told; a step that is done again after a restart replaces itself."""
    step = int(row["step"])
    rows[step] = rows.get(step, {}) | row
