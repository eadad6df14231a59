"""The table and the page of `cotbert geometry`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pipelines.reports import html_page
from pipelines.reports.similarity_plot import Panel, similarity_panels

NUMBERS = ("spearman", "alignment", "uniformity", "anisotropy", "token_anisotropy")
FOUND_FIRST = "found_first"
NO_VALUE = "none"
HEADER = ("model", "Spearman x 100", "alignment", "uniformity", "anisotropy", "token anisotropy")


def header(result: Mapping[str, Any]) -> tuple[str, ...]:
    """Return HEADER, with an extra column if the corpus has held-out documents."""
    return (*HEADER, "found first, %") if _has_found_first(result) else HEADER


def _has_found_first(result: Mapping[str, Any]) -> bool:
    return any(key.startswith(f"{FOUND_FIRST}/") for key in result)


def table_rows(result: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the rows under `header` for a result of `geometry`."""

    def digits(value: float | None, most: int = 4) -> str:
        return NO_VALUE if value is None else f"{value:.{most}f}"

    models = [key.partition("/")[2] for key in result if key.startswith("spearman/")]
    return [
        (
            label,
            digits(result[f"spearman/{label}"], 2),
            *(digits(result[f"{name}/{label}"]) for name in NUMBERS[1:]),
            *([f"{result[f'{FOUND_FIRST}/{label}']:.2f}"] if _has_found_first(result) else []),
        )
        for label in models
    ]


def _table(result: Mapping[str, Any]) -> str:
    """Return the page's table, without empty columns."""
    rows = [["" if cell == NO_VALUE else cell for cell in row] for row in table_rows(result)]
    return html_page.table(header(result), rows)


def geometry_page(
    result: Mapping[str, Any], gold: np.ndarray, panels: Sequence[Panel], sampled: int
) -> str:
    """Return the page of a result of `geometry`.

    gold: (N,) grades of the pairs. panels: label, (N,) cosines and Spearman of each model. sampled:
    number of corpus sentences used for the anisotropy; 0 if it is computed from the pairs.
    """
    counts = {key: value for key, value in result.items() if "/" not in key}
    sections = [
        ("Table", _table(result) + _legend(result, sampled)),
        ("Gold against predicted similarity", similarity_panels(gold, panels)),
        ("The shape alone", similarity_panels(gold, panels, normalized=True)),
        ("Data", html_page.table(("", ""), list(counts.items()), "text")),
    ]
    models = f"{len(panels)} models" if len(panels) > 1 else "a model"
    source = result["pairs_source"]
    note = f"The distribution of the sentence vectors of {models}, on {source}."
    return html_page.page("Geometry", note, sections)


def _legend(result: Mapping[str, Any], sampled: int) -> str:
    """Return a paragraph that explains the columns."""
    of = f"{sampled:,} sentences of the corpus" if sampled else "the same sentences"
    sentences = [
        "Spearman of the cosine against the gold score.",
        "Alignment over the pairs graded above 4 and uniformity over all distinct sentences of the "
        "pairs: lower is better.",
        f"Anisotropy: the average cosine between {of}; token anisotropy: between the rows of the "
        "encoder's static token table. 0 means evenly spread, 1 means one direction.",
    ]
    if _has_found_first(result):
        sentences.append(
            "Found first: test queries that find their own document among the corpus's held-out "
            "ones."
        )
    return html_page.paragraphs([" ".join(sentences)], "note")
