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
    """Score each template once; write the score to a file, log it to MLflow and show it.

    score: function from a template's text to its score. path: the file, with a line for each row.
    most: maximum number of templates. scores: by template, -inf for one without a valid score.
    """

    def __init__(self, score: Callable[[str], float], path: Path, run: Run, most: int) -> None:
        self._score, self._path, self._run = score, path, run
        self._progress = Progress("search", most, "template")
        self.rows: list[dict[str, Any]] = []
        self.scores: dict[str, float] = {}

    def __call__(self, text: str, stage: str) -> float:
        """Return the score of a template, -inf if it is not valid. stage: of the search."""
        if text not in self.scores:
            started = time.perf_counter()
            value = self._score(text)
            self._add(text, stage, value, time.perf_counter() - started)
        return self.scores[text]

    def _add(self, text: str, stage: str, spearman: float, seconds: float) -> None:
        number = len(self.rows) + 1
        row: dict[str, Any] = {
            "number": number,
            "template": text,
            "stage": stage,
            # Spearman is NaN for equal cosines, and JSON has no NaN.
            "spearman": spearman if math.isfinite(spearman) else None,
            "seconds": round(seconds, 3),
        }
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
        self.rows.append(row)
        self.scores[text] = _rank(row)
        if math.isfinite(spearman):
            self._run.metrics({DEV_SPEARMAN: spearman}, number)
        self._progress.show(number, f"{spearman:.2f}  {text}", always=True)


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
