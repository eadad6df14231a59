"""Means, spreads and paired tests of the study's scores, and the outcome of a paper's order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import false_discovery_control, ttest_1samp

from benchmarks.study.tables import Ours, Row

LEVEL = 0.05
HOLDS, OTHERWISE, INCONCLUSIVE = "holds", "does not hold", "inconclusive"


@dataclass(frozen=True)
class Gap:
    """The difference of two scores. p: p-value of a paired t-test over the seeds, or None."""

    mean: float
    p: float | None


def scores(record: Mapping[str, Any], ours: Ours) -> list[float]:
    """Return the scores of a row by seed, the single score of an untrained readout, or nothing."""
    entry = record[ours.part].get(ours.name)
    if entry is None:
        return []
    return list(entry["test"]) if ours.part == "trained" else [entry["score"]]


def gap(record: Mapping[str, Any], one: Ours, other: Ours) -> Gap | None:
    """Return the difference of two rows, paired by seed; None if one of them was not run.

    An untrained readout has the same score under every seed. Two untrained readouts have no p;
    their intervals are compared instead (`are_separate`). Neither has a single seed, nor an
    undefined score, nor a difference that is the same for all seeds: without variance p would be 0.
    """
    first, second = scores(record, one), scores(record, other)
    if not first or not second:
        return None
    if one.part == other.part:
        count = min(len(first), len(second))
        first, second = first[:count], second[:count]
    moved = np.subtract(first, second)
    if np.ptp(moved) > 1e-9:
        return Gap(float(moved.mean()), float(ttest_1samp(moved, 0).pvalue))
    return Gap(float(moved.mean()), 1.0 if len(moved) > 1 and not moved.any() else None)


def adjusted(gaps: Sequence[Gap | None]) -> list[Gap | None]:
    """Return the gaps with p-values of all comparisons together (Benjamini and Hochberg, 1995)."""
    found = [gap.p for gap in gaps if gap is not None and gap.p is not None]
    values = iter(false_discovery_control(found) if found else ())
    return [g if g is None or g.p is None else Gap(g.mean, float(next(values))) for g in gaps]


def outcome(record: Mapping[str, Any], row: Row, found: Gap | None, published: float) -> str:
    """Return whether the paper's order of a row and its counterpart holds.

    published: the paper's number of the counterpart. A row without a number is below it.
    """
    if found is None or row.published == published:
        return ""
    assert isinstance(row.ours, Ours)
    assert row.against is not None
    conclusive = are_separate(record, row.ours, row.against) if found.p is None else found.p < LEVEL
    if not conclusive:
        return INCONCLUSIVE
    is_above = row.published is not None and row.published > published
    return HOLDS if is_above == (found.mean > 0) else OTHERWISE


def are_separate(record: Mapping[str, Any], one: Ours, other: Ours) -> bool:
    """Return whether the 95 % intervals of two untrained readouts do not overlap.

    False for one seed of a training, whose interval does not cover other seeds.
    """
    ends = [record[o.part][o.name] for o in (one, other) if o.part == "readouts"]
    if len(ends) < 2 or any(entry["low"] is None for entry in ends):
        return False
    return max(e["low"] for e in ends) > min(e["high"] for e in ends)


def at_time(curve: Sequence[Sequence[float]], seconds: float) -> float:
    """Return the best dev score of a run within this many seconds of training."""
    return max(score for spent, score in curve if spent <= seconds + 1e-6)


def mean_spread(values: Sequence[float]) -> str:
    """Return mean and sample standard deviation, or a single value alone."""
    if len(values) < 2:
        return f"{values[0]:.2f}"
    return f"{np.mean(values):.2f} ± {np.std(values, ddof=1):.2f}"
