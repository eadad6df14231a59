"""The summary of the quickstart: tables and neighbours, for the terminal and a page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cotbert_core.evaluation import read_pairs
from cotbert_core.evaluation.pairs import PairScores
from cotbert_core.files import write_text
from cotbert_core.settings import TrainSettings
from pipelines.recording.tracking import BASELINE, DEV_SPEARMAN
from pipelines.reports import html_page, plots, training_page
from pipelines.runtime.progress import clock, table
from pipelines.training.baseline import baseline_line, baseline_sentence
from pipelines.training.dev_sets import BUILT_IN_NAME, BUILT_IN_PAIRS
from pipelines.training.metrics_log import METRICS_FILE, read_rows


@dataclass
class QuickstartOutcome:
    """The results of all stages."""

    settings: TrainSettings
    prepared: dict[str, Any]
    trained: dict[str, Any]
    embedded: dict[str, Any]
    before: dict[str, PairScores]
    after: dict[str, PairScores]
    untouched: dict[str, PairScores]
    evaluated_per_second: float
    neighbours: list[tuple[str, list[tuple[float, str]]]]

    @property
    def baseline_sentence(self) -> str:
        """A sentence that compares the trained encoder with the untouched one."""
        return baseline_sentence({**self.trained, DEV_SPEARMAN: self.after["dev"].spearman})


def score_rows(outcome: QuickstartOutcome) -> list[tuple[str, ...]]:
    """Return the rows of scores: name, before, after, and the untouched encoder."""
    scores = (outcome.before, outcome.after, outcome.untouched)

    def row(name: str, digits: int, split: str, field: str) -> tuple[str, ...]:
        return (name, *(f"{getattr(s[split], field):.{digits}f}" for s in scores))

    return [
        row(f"{BUILT_IN_NAME}, dev Spearman x 100", 2, "dev", "spearman"),
        row(f"{BUILT_IN_NAME}, test Spearman x 100", 2, "test", "spearman"),
        row("alignment (test, lower is better)", 3, "test", "alignment"),
        row("uniformity (test, lower is better)", 3, "test", "uniformity"),
    ]


def speed_rows(outcome: QuickstartOutcome) -> list[tuple[str, ...]]:
    """Return the rows of speeds: stage, sentences, sentences per second."""
    steps = outcome.trained["steps"] * outcome.settings.batch_size
    pairs = len(read_pairs(BUILT_IN_PAIRS))
    return [
        ("prepare", f"{outcome.prepared['rows']:,}", _rate(outcome.prepared)),
        ("train", f"{steps:,}", _rate(outcome.trained)),
        ("evaluate", f"{2 * pairs:,}", f"{outcome.evaluated_per_second:,.0f}"),
        ("embed", f"{outcome.embedded['rows']:,}", _rate(outcome.embedded)),
    ]


def _rate(result: dict[str, Any]) -> str:
    return f"{result['sentences_per_second']:,.0f}"


def score_header(outcome: QuickstartOutcome) -> tuple[str, ...]:
    """Return the header of `score_rows`."""
    return ("", "[MASK] before", "[MASK] after", f"untouched: {outcome.trained[BASELINE]}")


SPEED_HEADER = ("stage", "sentences", "sentences/s")


def summary(outcome: QuickstartOutcome) -> str:
    """Return the text for the terminal: tables, neighbours, and the comparison with the untouched
    encoder."""
    lines = [table(score_rows(outcome), score_header(outcome)), ""]
    lines += [table(speed_rows(outcome), SPEED_HEADER)]
    for query, found in outcome.neighbours:
        lines += ["", query, *(f"  {cosine:.2f}  {text}" for cosine, text in found)]
    lines += ["", outcome.baseline_sentence]
    return "\n".join(lines) + "\n"


def write_report(output: Path, outcome: QuickstartOutcome, seconds: float) -> None:
    """Write report.html."""
    test = read_pairs(BUILT_IN_PAIRS, "test")
    panels = [
        (name, scores["test"].cosine, scores["test"].spearman)
        for name, scores in (("Before", outcome.before), ("After", outcome.after))
    ]
    found = [
        (query if rank == 0 else "", f"{cosine:.2f}", text)
        for query, texts in outcome.neighbours
        for rank, (cosine, text) in enumerate(texts)
    ]
    rows = read_rows(output / "train" / METRICS_FILE)
    baseline = training_page.against_baseline(outcome.baseline_sentence)
    curves = plots.training_curves(rows, baseline_line(outcome.trained))
    sections = [
        ("Scores", html_page.table(score_header(outcome), score_rows(outcome)) + baseline),
        ("Loss and dev score by step", curves),
        (
            "Gold against predicted similarity, test half",
            plots.similarity_scatter(test.gold, panels),
        ),
        ("Nearest sentences", html_page.table(("query", "cosine", "sentence"), found, "text")),
        ("Speed", html_page.table(SPEED_HEADER, speed_rows(outcome))),
        ("Settings", training_page.settings_table(outcome.settings, outcome.trained["dev"])),
    ]
    note = (
        f"CoT-BERT on {outcome.settings.encoder}, trained for {outcome.trained['steps']} steps on "
        f"{outcome.prepared['rows']:,} sentences of documentation; all stages took "
        f"{clock(seconds)}. The encoder already was a sentence encoder (last column); training "
        "improves its [MASK] vector."
    )
    write_text(output / "report.html", html_page.page("Quickstart", note, sections))
