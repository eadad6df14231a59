"""The template search, the ledger of scored templates, and the table of scores."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipelines.recording.metric_names import DEV_SPEARMAN
from pipelines.recording.tracking import Run
from pipelines.runtime.progress import Progress, table
from pipelines.templates.template_candidates import STAGES, Candidate, Lists

# A function from a template's text and the search stage to the score.
Score = Callable[[str, str], float]


def greedy_search(score: Score, lists: Lists, rounds: int = 1) -> Candidate:
    """Return the best relationship with the bare sentence, with the best prefix for it.

    This is the search of PromptBERT section 4.2. Each further round repeats both stages from the
    best template so far, until a round changes nothing. The earlier template wins a tie.
    """
    best = Candidate()
    highest = score(best.text, STAGES[0])
    for number in range(1, rounds + 1):
        previous = best
        for stage in STAGES:
            for candidate in lists.variants(best, stage):
                value = score(candidate.text, stage if number == 1 else f"{stage} {number}")
                if value > highest:
                    best, highest = candidate, value
        if best == previous:
            break
    return best


class TemplateLedger:
    """The scored templates, in memory and in a file with a line for each.

    scores: of the templates, -inf for one without a valid score.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.rows: list[dict[str, Any]] = []
        self.scores: dict[str, float] = {}

    def add(self, template: str, stage: str, spearman: float, seconds: float) -> dict[str, Any]:
        """Write a score to disk and return its row."""
        row: dict[str, Any] = {
            "number": len(self.rows) + 1,
            "template": template,
            "stage": stage,
            # Spearman is NaN for equal cosines, and JSON has no NaN.
            "spearman": spearman if math.isfinite(spearman) else None,
            "seconds": round(seconds, 3),
        }
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
        self.rows.append(row)
        self.scores[template] = _rank(row)
        return row


class Scorer:
    """Score each template once; write the score to the ledger, log it to MLflow and show it."""

    def __init__(
        self, score: Callable[[str], float], ledger: TemplateLedger, run: Run, most: int
    ) -> None:
        self._score, self._ledger, self._run = score, ledger, run
        self._progress = Progress("search", most, "template")

    def __call__(self, text: str, stage: str) -> float:
        if text not in self._ledger.scores:
            started = time.perf_counter()
            value = self._score(text)
            row = self._ledger.add(text, stage, value, time.perf_counter() - started)
            if row["spearman"] is not None:
                self._run.metrics({DEV_SPEARMAN: value}, row["number"])
            self._progress.show(row["number"], f"{value:.2f}  {text}", always=True)
        return self._ledger.scores[text]


def search_table(rows: list[dict[str, Any]], best: str, most: int | None = None) -> str:
    """Return the table of templates by stage, the best last, as in PromptBERT Table 4.

    most: maximum number of templates per stage, None for all.
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
