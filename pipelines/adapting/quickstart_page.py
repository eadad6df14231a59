"""The summary of the quickstart: what was gained, tables and neighbours, for terminal and page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cotbert_core.errors import counted
from cotbert_core.files import write_text
from cotbert_core.messages.printable import shortened
from pipelines.adapting.choosing import UNTOUCHED
from pipelines.adapting.found_plot import found_plot
from pipelines.adapting.outcome import score_words
from pipelines.adapting.report import changed_section
from pipelines.adapting.sentences import sentences
from pipelines.evaluating.changed_queries import LONGEST
from pipelines.evaluating.scoring import FOUND_FIRST, score_of
from pipelines.reports import html_page
from pipelines.runtime.ending import REPORT_FILE
from pipelines.runtime.progress import clock, table

# The candidates of the quickstart: CoT-BERT as published, and a sentence with the rest of its
# document as its positive, which finds most (docs/measured.md). `cotbert adapt` tries all.
SHOWN = ("cot-bert-template", "denosent-rest")


@dataclass
class QuickstartOutcome:
    """The results of the stages."""

    adapted: Mapping[str, Any]
    neighbours: list[tuple[str, list[tuple[float, str]]]]

    @property
    def models(self) -> dict[str, Mapping[str, Any]]:
        """The scores of the untouched encoder, the shown candidates, and the chosen encoder."""
        names = dict.fromkeys((UNTOUCHED, *SHOWN, self.adapted["chosen"]))
        return {n: self.adapted["models"][n] for n in names if n in self.adapted["models"]}

    def label(self, name: str) -> str:
        """Return the name of a model with its number of steps: candidates may differ in it."""
        steps = {row["name"]: row["steps"] for row in self.adapted["trials"]}
        return f"{name}, {counted(steps[name], 'step')}" if name in steps else name

    def scores(self) -> dict[str, float]:
        """Return the share of queries that find their document first, by model."""
        return {
            f"found_first.{name}": score_of(entries[FOUND_FIRST])
            for name, entries in self.models.items()
        }


def score_rows(outcome: QuickstartOutcome) -> list[tuple[str, ...]]:
    """Return the rows of scores: name, then a column for each model."""
    tasks = outcome.adapted["table"]
    return [
        (
            score_words(task),
            *(f"{score_of(entries[task]):.2f}" for entries in outcome.models.values()),
        )
        for task in tasks
    ]


def score_header(outcome: QuickstartOutcome) -> tuple[str, ...]:
    """Return the header of `score_rows`."""
    return ("", *map(outcome.label, outcome.models))


def summary(outcome: QuickstartOutcome) -> str:
    """Return the text for the terminal: what was gained, the scores, and neighbours."""
    lines = [table(score_rows(outcome), score_header(outcome))]
    for query, found in outcome.neighbours:
        lines += ["", query, *(f"  {cosine:.2f}  {shortened(text, 90)}" for cosine, text in found)]
    return "\n".join([*lines, "", *sentences(outcome.adapted)]) + "\n"


def write_report(output: Path, outcome: QuickstartOutcome, seconds: float) -> None:
    """Write report.html."""
    found = [
        (query if rank == 0 else "", f"{cosine:.2f}", shortened(text, LONGEST))
        for query, texts in outcome.neighbours
        for rank, (cosine, text) in enumerate(texts)
    ]
    said = html_page.paragraphs(sentences(outcome.adapted))
    documents = outcome.adapted["documents"]
    sections = [
        (
            "What was gained",
            said + found_plot(outcome.adapted, outcome.models, outcome.label),
        ),
        ("Scores", html_page.table(score_header(outcome), score_rows(outcome))),
        *changed_section(outcome.adapted),
        ("Nearest held-out documents", html_page.table(_FOUND, found, "text")),
    ]
    what = "tried on" if outcome.adapted["chosen"] == UNTOUCHED else "adapted to"
    note = (
        f"{outcome.adapted['encoder']}, {what} {documents['documents']:,} docstrings of "
        f"installed packages in {clock(seconds)}. The first sentence of five words or more of "
        f"each of {documents['held_out']:,} held-out docstrings is searched among the rest of all "
        "of them; half of these queries chose the encoder, the other half gave these scores. The "
        "page of the adaptation itself is adapt/report.html."
    )
    write_text(output / REPORT_FILE, html_page.page("Quickstart", note, sections))


_FOUND = ("query", "cosine", "document")
