"""Confidence intervals of a Spearman correlation: percentile bootstrap over sentence pairs.

Pairs are sampled with replacement, equal ones together, and ranked again in each resample, with
ties at their mean rank.

Letters: N pairs, R resamples.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

# The level of the interval between the 2.5th and the 97.5th percentile.
LEVEL = 0.95
SEED = 0


@dataclass(frozen=True)
class Interval:
    """The ends of a percentile interval; both are NaN if no resample has a correlation."""

    low: float
    high: float


@dataclass(frozen=True)
class Difference:
    """The difference of two models' scores (x 100) on the same pairs, second minus first.

    low, high: 95 % interval. p: two-sided p-value.
    """

    difference: float
    low: float
    high: float
    p: float


def seed_of(name: str) -> tuple[int, int]:
    """Return a seed for a task: with a common seed, tasks of equal size would be correlated."""
    return (SEED, zlib.crc32(name.encode()))


def resampled_spearman(
    predicted: np.ndarray,
    gold: np.ndarray,
    resamples: int,
    seed: int | Sequence[int] = SEED,
    groups: np.ndarray | None = None,
) -> np.ndarray:
    """Return the Spearman x 100 of R resamples, (R,). predicted, gold: (N,).

    groups: (N,) numbers of the groups, from 0, which are resampled as wholes; None if each pair is
    a group. The resamples depend only on the groups and the seed, so two models with scores on the
    same pairs get the same resamples. A resample with one distinct value has no correlation and
    gives NaN.
    """
    from scipy.stats import rankdata  # imported here, since it takes 1.2 s

    group = np.arange(len(gold)) if groups is None else groups
    found = np.full(resamples, np.nan)
    for number, counts in enumerate(_counts(int(group.max()) + 1, resamples, seed)):
        pairs = np.repeat(np.arange(len(gold)), counts[group])
        x, y = (rankdata(values[pairs]) - (len(pairs) + 1) / 2 for values in (predicted, gold))
        if (spread := (x @ x) * (y @ y)) > 0:
            found[number] = 100 * (x @ y) / np.sqrt(spread)
    return found


def resampled_mean(
    values: np.ndarray,
    resamples: int,
    seed: int | Sequence[int] = SEED,
    groups: np.ndarray | None = None,
) -> np.ndarray:
    """Return the means x 100 of R resamples, (R,), sampled as in `resampled_spearman`.

    values: (N,); for an accuracy 1 for a right answer and 0 for a wrong one. groups: (N,) numbers
    of the groups (queries of one document), which are resampled as wholes; None if each value is a
    group.
    """
    _, group = np.unique(np.arange(len(values)) if groups is None else groups, return_inverse=True)
    sums, sizes = np.bincount(group, values), np.bincount(group).astype(float)
    drawn = _counts(len(sums), resamples, seed)
    return np.array([100 * (counts @ sums) / (counts @ sizes) for counts in drawn])


def interval(values: np.ndarray) -> Interval:
    """Return the percentile interval of (R,) resampled values; NaN values are left out."""
    known = values[np.isfinite(values)]
    if not len(known):
        return Interval(float("nan"), float("nan"))
    tail = 50 * (1 - LEVEL)
    low, high = np.percentile(known, [tail, 100 - tail])
    return Interval(float(low), float(high))


def difference(observed: float, first: np.ndarray, second: np.ndarray) -> Difference:
    """Return the difference of two models with its interval and p-value.

    observed: difference of the scores. first, second: (R,) paired resamples of both models. p is
    twice the share of resamples on the other side of 0; the observed difference counts as one of
    them, so p is at least 2 / (R + 1). p and the interval are NaN if no resample has both scores.
    """
    moved = second - first
    moved = moved[np.isfinite(moved)]
    ends = interval(moved)
    below, above = (1 + np.sum(moved <= 0), 1 + np.sum(moved >= 0))
    p = min(1.0, 2 * float(min(below, above)) / (len(moved) + 1)) if len(moved) else float("nan")
    return Difference(observed, ends.low, ends.high, p)


def _counts(size: int, resamples: int, seed: int | Sequence[int]) -> Iterator[np.ndarray]:
    """Yield for each resample the count (N,) of each of N = `size` pairs in it."""
    generator = np.random.default_rng(seed)
    for _ in range(resamples):
        yield np.bincount(generator.integers(0, size, size), minlength=size)
