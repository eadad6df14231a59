"""Templates and their scores: the search, what it has scored, and the table of it."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipelines.recording.tracking import DEV_SPEARMAN, Run
from pipelines.runtime.progress import Progress, table
from pipelines.templates.template_candidates import STAGES, Candidate, Lists

# The score of a template's text, which a stage of the search asks for.
Score = Callable[[str, str], float]


def greedy_search(score: Score, lists: Lists, rounds: int = 1) -> Candidate:
    """The best relationship with the bare sentence, then the best prefix around it (PromptBERT
    section 4.2); a further round does both again with the other part as found.

    Of equals the one scored first stays. Ends early when a round changes nothing.
    """
    best = Candidate()
    highest = score(best.text, STAGES[0])
    for number in range(1, rounds + 1):
        before = best
        for stage in STAGES:
            for candidate in lists.variants(best, stage):
                value = score(candidate.text, stage if number == 1 else f"{stage} {number}")
                if value > highest:
                    best, highest = candidate, value
        if best == before:
            break
    return best


class TemplateLedger:
    """What has been scored, a line a template; a half-written last line is dropped."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.rows: list[dict[str, Any]] = []
        if path.is_file():
            whole, newline, _ = path.read_bytes().rpartition(b"\n")
            path.write_bytes(whole + newline)
            self.rows = [json.loads(line) for line in whole.decode().split("\n") if line]
        self._scores = {row["template"]: row["spearman"] for row in self.rows}

    def __contains__(self, template: str) -> bool:
        return template in self._scores

    def __getitem__(self, template: str) -> float:
        """Lower than any score for a template without one."""
        value = self._scores[template]
        return -math.inf if value is None else float(value)

    def add(self, template: str, stage: str, spearman: float, seconds: float) -> dict[str, Any]:
        """Keep a score, on the disk too, before the next one is worked out."""
        row = {
            "number": len(self.rows) + 1,
            "template": template,
            "stage": stage,
            # Equal cosines, or none, have no correlation, and JSON has no NaN.
            "spearman": spearman if math.isfinite(spearman) else None,
            "seconds": round(seconds, 3),
        }
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
        self.rows.append(row)
        self._scores[template] = row["spearman"]
        return row


class Scorer:
    """The score of a template: worked out once, kept, told to MLflow and shown."""

    def __init__(
        self, score: Callable[[str], float], ledger: TemplateLedger, run: Run, most: int
    ) -> None:
        self._score, self._ledger, self._run = score, ledger, run
        self._progress = Progress("search", most, "template")
        self._progress.start_at(len(ledger.rows))

    def __call__(self, text: str, stage: str) -> float:
        if text not in self._ledger:
            started = time.perf_counter()
            value = self._score(text)
            row = self._ledger.add(text, stage, value, time.perf_counter() - started)
            self._run.metrics(metrics_of(row), row["number"])
            self._progress.show(row["number"], f"{value:.2f}  {text}", always=True)
        return self._ledger[text]


def search_table(rows: list[dict[str, Any]], best: str, most: int | None = None) -> str:
    """Templates by stage, the best last, as in PromptBERT Table 4.

    most: show only so many of a stage, the best ones.
    """
    lines: list[tuple[str, ...]] = []
    for stage in dict.fromkeys(row["stage"] for row in rows):
        part = sorted((r for r in rows if r["stage"] == stage), key=_rank)
        for row in part[-most:] if most else part:
            value = "none" if row["spearman"] is None else f"{row['spearman']:.2f}"
            lines.append((row["template"], stage, value, "best" if row["template"] == best else ""))
    return table(lines, ("template", "stage", "dev Spearman", ""))


def _rank(row: dict[str, Any]) -> float:
    return -math.inf if row["spearman"] is None else float(row["spearman"])


def metrics_of(row: dict[str, Any]) -> dict[str, float]:
    """A row's score as MLflow takes it."""
    return {} if row["spearman"] is None else {DEV_SPEARMAN: row["spearman"]}
