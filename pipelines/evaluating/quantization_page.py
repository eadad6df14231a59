"""The speedup and the loss of an int8 graph: sentences for the terminal, and a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pipelines.evaluating.differences import headlines
from pipelines.evaluating.scoring import score_of
from pipelines.evaluating.tables import difference_row
from pipelines.reports import html_page, plots
from pipelines.reports.colours import BLUE

BINS = 40


def gain_sentence(facts: Mapping[str, Any]) -> str:
    """Return a sentence that compares the graph's speed with torch's on the same texts."""
    fast, torch = facts["sentences_per_second"], facts["sentences_per_second_torch"]
    ratio = facts["speedup"]
    how = f"{ratio:.1f} times as fast as torch" if ratio > 1 else "no faster than torch"
    return f"int8 is {how} on this machine ({fast:,.0f} against {torch:,.0f} sentences/s)."


def score_sentences(facts: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each score, before and after, and whether the change is significant."""
    entries = headlines(facts["differences"])
    return [_sentence(name, of, entry, facts["scores"]) for name, of, entry in entries]


def _sentence(name: str, of: str, entry: Mapping[str, Any], scores: Mapping[str, Any]) -> str:
    before, after = (score_of(scores[when][name]) for when in ("before", "after"))
    low, high = entry["low"], entry["high"]
    chance = ", which may be chance" if low is not None and low <= 0 <= high else ""
    return f"{of[0].upper()}{of[1:]}: {before:.2f} before, {after:.2f} in int8{chance}."


def quantization_page(model: str, facts: Mapping[str, Any], same: np.ndarray) -> str:
    """Return the report. same: (N,) cosines of the compared texts' vectors, int8 to fp32."""
    before, after = facts["scores"]["before"], facts["scores"]["after"]
    header = ("score x 100", "fp32", "int8", "difference", "95 % interval", "p")
    rows = [
        (name, f"{score_of(before[name]):.2f}", f"{score_of(after[name]):.2f}", *cells[1:])
        for name, entry in facts["differences"].items()
        for cells in [difference_row(name, entry)]
    ]
    lowest = (
        f"Of {len(same):,} texts that calibrated nothing: mean {facts['cosine_mean']:.4f}, lowest "
        f"hundredth {facts['cosine_lowest_percent']:.4f}, lowest {facts['cosine_lowest']:.4f}."
    )
    made = [
        ("texts that calibrated it", facts["calibration_texts"]),
        ("inputs", ", ".join(facts["inputs"])),
        *facts["versions"].items(),
    ]
    sections = [
        ("What it costs", html_page.table(header, rows)),
        (
            "Cosine of each vector in int8 to the same in fp32",
            html_page.paragraphs([lowest]) + _cosines(same),
        ),
        ("How it was made", html_page.table(("", ""), made, "text")),
    ]
    return html_page.page("int8 graph", f"{model}. {gain_sentence(facts)}", sections)


def _cosines(same: np.ndarray) -> str:
    counts, edges = np.histogram(same, BINS)

    def draw(axes: Any) -> None:
        bars = axes.bar(edges[:-1], counts, np.diff(edges), align="edge", color=BLUE)
        for bar, left, count in zip(bars, edges, counts, strict=False):
            plots.hover(bar, f"from {left:.4f}: {count:,} texts")
        plots.count_axis(axes.yaxis)
        axes.locator_params(axis="x", nbins=4)  # numbers of six characters
        axes.set_xlabel("cosine")
        axes.set_ylabel("texts")

    return html_page.plots([plots.plot(draw)])
