"""Test whether the difference between two models on the same pairs is significant."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from cotbert_core.evaluation.bootstrap import LEAST_GROUPS, difference, wider
from cotbert_core.evaluation.labelled import widening
from pipelines.evaluating.scoring import (
    AVERAGE,
    FOUND_FIRST,
    PASSAGES,
    PASSAGES_WITH_KEYWORDS,
    SAME_LABEL,
    TRANSFER_AVERAGE,
    WITH_KEYWORDS,
    Scored,
    score_of,
)
from pipelines.reports.values import p_value

HEADLINES = {
    AVERAGE: "average Spearman of the STS tasks",
    TRANSFER_AVERAGE: "average accuracy of the transfer tasks",
    FOUND_FIRST: "queries that find their held-out document first, in %",
    WITH_KEYWORDS: "queries that find it first with keyword search added, in %",
    PASSAGES: "queries that find it first by passages, in %",
    PASSAGES_WITH_KEYWORDS: "queries that find it first by passages and keywords, in %",
    SAME_LABEL: "texts whose nearest text has the same label, in %",
}

TOO_FEW = f"fewer than {LEAST_GROUPS} documents, texts or pairs without a common sentence, too few"


def differences(first: Scored, second: Scored) -> dict[str, dict[str, float | None]]:
    """Return for each task and average the gain of `second` over `first`: difference, low, high, p.

    They are None for an undefined correlation, since JSON has no NaN; low, high and p also if there
    are too few documents, texts or pairs without a common sentence; low and high if both models put
    the pairs in the same order. low and high are no further from 0 than the scores allow.
    """
    found = {}
    for name in first.resampled:
        gap = score_of(second.entries[name]) - score_of(first.entries[name])
        groups = first.groups.get(name)
        values = asdict(difference(gap, *_resampled(name, first, second), groups))
        if groups is None and max(abs(values["low"]), abs(values["high"])) < 1e-9:
            values |= {"low": math.nan, "high": math.nan}
        most = _span(name, first.entries[name])
        values |= {end: float(np.clip(values[end], -most, most)) for end in ("low", "high")}
        found[name] = {key: v if math.isfinite(v) else None for key, v in values.items()}
    return found


def _resampled(name: str, first: Scored, second: Scored) -> tuple[np.ndarray, np.ndarray]:
    """Return the paired resamples (R,) of an entry of both models."""
    before, after = first.resampled[name], second.resampled[name]
    if name != SAME_LABEL or first.nearest is None or second.nearest is None:
        return before, after
    gain = second.nearest.found - first.nearest.found
    factor = widening(gain, [first.nearest, second.nearest])
    return before, before + wider(after - before, factor)


def _span(name: str, entry: Any) -> float:
    """Return the largest possible difference of an entry's score: correlations begin at -100."""
    is_spearman = name == AVERAGE or (isinstance(entry, Mapping) and "spearman" in entry)
    return 200.0 if is_spearman else 100.0


def difference_sentences(result: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each model after the first and each average, pairs file and
    corpus."""
    return [
        _sentence(label, result["against"], of, entry)
        for label, entries in result["differences"].items()
        for _, of, entry in headlines(entries)
    ]


def headlines(entries: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield the name, the meaning and the entry of each average, pairs file and corpus."""
    for name, entry in entries.items():
        # A user's own pairs are not part of an average.
        if name in HEADLINES or name.startswith("pairs-"):
            yield name, HEADLINES.get(name, f"Spearman of {name}"), entry


def _sentence(label: str, against: str, of: str, entry: Mapping[str, Any]) -> str:
    gap, low, high = entry["difference"], entry["low"], entry["high"]
    if gap is None:
        return f"{label} and {against} cannot be compared, {of}: one of them gives equal cosines."
    if low is None and entry["p"] is not None:
        return f"{label} and {against} have the same score, so nothing tells them apart, {of}."
    if low is None:
        return (
            f"The difference between {label} and {against} is {gap:+.2f}, {of}, of {TOO_FEW} to "
            "tell it from chance."
        )
    if low <= 0 <= high:
        return (
            f"The difference between {label} and {against} is within chance: {gap:+.2f} "
            f"({low:+.2f} to {high:+.2f}), {of}."
        )
    better, worse = (label, against) if low > 0 else (against, label)
    least, most = sorted((abs(low), abs(high)))
    return (
        f"{better} is better than {worse} by {abs(gap):.2f} ({least:.2f} to {most:.2f}), "
        f"p {p_value(entry['p'])}, {of}."
    )
