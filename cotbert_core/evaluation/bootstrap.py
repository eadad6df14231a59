"""Confidence intervals of a Spearman correlation: percentile bootstrap over sentence pairs.

Pairs are sampled with replacement, equal ones together, and ranked again in each resample, with
ties at their mean rank. Resamples are not sorted: if one has pair i w_i times, the mean rank of
equal values is the number of smaller values plus half the number of equal ones, which follows from
one sort of the values and the counts w. 1,000 resamples of 3,000 pairs take 0.07 s, compared with
0.74 s for scipy's spearmanr in a loop (one core of an Intel Xeon).

Letters: N pairs, R resamples, V distinct values.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

# The level of the interval between the 2.5th and the 97.5th percentile.
LEVEL = 0.95
SEED = 0
# The number of counts (resamples, N) in memory at once: arrays of 0.8 MB stay in a core's cache,
# arrays of 8 MB took 2 to 3 times as long.
BLOCK_CELLS = 100_000


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
    group = np.arange(len(gold)) if groups is None else groups
    # Sorted by grade, so that only the predictions need to be gathered.
    order = np.argsort(gold, kind="stable")
    ranks, by_gold = _Ranks(predicted[order]), _Ranks(gold[order])
    found = []
    for counts in _counts(int(group.max()) + 1, resamples, seed):
        mine = counts[:, group[order]]
        x, y = ranks.centred(mine), by_gold.centred(mine)
        weighted = mine * x
        above = np.einsum("rn,rn->r", weighted, y)
        spread = np.einsum("rn,rn->r", weighted, x) * np.einsum("rn,rn,rn->r", mine, y, y)
        with np.errstate(invalid="ignore"):
            found.append(np.where(spread > 0, above / np.sqrt(spread), np.nan))
    return 100 * np.concatenate(found) if found else np.empty(0)


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
    blocks = _counts(len(sums), resamples, seed)
    means = [100 * (counts @ sums) / (counts @ sizes) for counts in blocks]
    return np.concatenate(means) if means else np.empty(0)


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
    them, so p is at least 2 / (R + 1).
    """
    moved = second - first
    moved = moved[np.isfinite(moved)]
    ends = interval(moved)
    below, above = (1 + np.sum(moved <= 0), 1 + np.sum(moved >= 0))
    p = min(1.0, 2 * float(min(below, above)) / (len(moved) + 1))
    return Difference(observed, ends.low, ends.high, p)


def _counts(size: int, resamples: int, seed: int | Sequence[int]) -> Iterator[np.ndarray]:
    """Yield blocks (up to R, N) of the count of each of N = `size` pairs in each resample."""
    generator = np.random.default_rng(seed)
    rows = max(1, BLOCK_CELLS // size)
    for start in range(0, resamples, rows):
        block = min(rows, resamples - start)
        sample = generator.integers(0, size, (block, size))
        sample += np.arange(block)[:, None] * size
        yield np.bincount(sample.ravel(), minlength=block * size).reshape(block, size).astype(float)


class _Ranks:
    """The mean ranks of (N,) values in any resample."""

    def __init__(self, values: np.ndarray) -> None:
        self._order = np.argsort(values, kind="stable")
        ordered = values[self._order]
        first = np.concatenate([[True], ordered[1:] != ordered[:-1]])
        self._starts = np.flatnonzero(first)  # (V,)
        self._group = np.empty(len(values), int)  # (N,) index of each pair's value among the V
        self._group[self._order] = np.cumsum(first) - 1

    def centred(self, counts: np.ndarray) -> np.ndarray:
        """Return the ranks (R, N) minus their mean in each resample. counts: (R, N)."""
        held = np.add.reduceat(counts[:, self._order], self._starts, axis=1)  # (R, V)
        ranks = np.cumsum(held, axis=1) - held / 2
        ranks -= counts.sum(axis=1, keepdims=True) / 2
        return np.asarray(ranks[:, self._group])
