"""How far chance moves a Spearman correlation: percentile bootstrap over sentence pairs.

Pairs are drawn with replacement and ranked anew in each resample, ties at their mean rank. No
resample is sorted: in one that holds pair i w_i times, the mean rank of equal values is what lies
below them plus half of their number, which one sort of the values and the counts w give. 1,000
resamples of 3,000 pairs take 0.07 s in place of 0.74 s with scipy's spearmanr in a loop (one core
of an Intel Xeon).

Letters: N pairs, R resamples, V distinct values.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

# Of a 95 % interval, between the 2.5th and the 97.5th percentile.
LEVEL = 0.95
SEED = 0
# Counts held at once, (resamples, N): arrays of 0.8 MB, which stay in a core's cache. Of 8 MB
# they took 2 to 3 times as long.
BLOCK_CELLS = 100_000


@dataclass(frozen=True)
class Interval:
    """Ends of a percentile interval; both NaN if no resample has a correlation."""

    low: float
    high: float


@dataclass(frozen=True)
class Difference:
    """By how much the second of two models is above the first, on the same pairs (x 100).

    low, high: 95 % interval. p: two-sided, of a difference as far from 0 by chance alone.
    """

    difference: float
    low: float
    high: float
    p: float

    @property
    def real(self) -> bool:
        """Whether the interval leaves 0 out."""
        return self.low > 0 or self.high < 0


def seed_of(name: str, seed: int = SEED) -> tuple[int, int]:
    """A seed for each task: with one for all, tasks of equal size would move together."""
    return (seed, zlib.crc32(name.encode()))


def resampled_spearman(
    predicted: np.ndarray, gold: np.ndarray, resamples: int, seed: int | Sequence[int] = SEED
) -> np.ndarray:
    """(N,) predictions and grades -> (R,) Spearman x 100 of resampled pairs.

    The resamples depend on N and the seed alone, so that two models scored on the same pairs see
    the same ones. NaN where a resample holds one distinct value, as it has no correlation.
    """
    # In the order of the grades, of which there are few values: only the other side is gathered.
    order = np.argsort(gold, kind="stable")
    ranks, by_gold = _Ranks(predicted[order]), _Ranks(gold[order])
    found = []
    for counts in _counts(len(gold), resamples, seed):
        mine = counts[:, order]
        x, y = ranks.centred(mine), by_gold.centred(mine)
        weighted = mine * x
        above = np.einsum("rn,rn->r", weighted, y)
        spread = np.einsum("rn,rn->r", weighted, x) * np.einsum("rn,rn,rn->r", mine, y, y)
        with np.errstate(invalid="ignore"):
            found.append(np.where(spread > 0, above / np.sqrt(spread), np.nan))
    return 100 * np.concatenate(found) if found else np.empty(0)


def resampled_mean(
    values: np.ndarray, resamples: int, seed: int | Sequence[int] = SEED
) -> np.ndarray:
    """(N,) values -> (R,) means x 100 of resampled ones, drawn as in `resampled_spearman`.

    Of an accuracy: values are 1 for a right answer and 0 for a wrong one.
    """
    sums = [counts @ values for counts in _counts(len(values), resamples, seed)]
    return 100 * np.concatenate(sums) / len(values) if sums else np.empty(0)


def interval(values: np.ndarray, level: float = LEVEL) -> Interval:
    """The percentile interval of (R,) resampled values; those that are NaN are left out."""
    known = values[np.isfinite(values)]
    if not len(known):
        return Interval(float("nan"), float("nan"))
    tail = 50 * (1 - level)
    low, high = np.percentile(known, [tail, 100 - tail])
    return Interval(float(low), float(high))


def difference(
    observed: float, first: np.ndarray, second: np.ndarray, level: float = LEVEL
) -> Difference:
    """The difference `observed` of two models' scores, with the paired resamples (R,) of both.

    p is twice the share of resamples on the other side of 0, the observed one counted among them
    (so never 0: at least 2 / (R + 1)).
    """
    moved = second - first
    moved = moved[np.isfinite(moved)]
    ends = interval(moved, level)
    below, above = (1 + np.sum(moved <= 0), 1 + np.sum(moved >= 0))
    p = min(1.0, 2 * float(min(below, above)) / (len(moved) + 1))
    return Difference(observed, ends.low, ends.high, p)


def _counts(size: int, resamples: int, seed: int | Sequence[int]) -> Iterator[np.ndarray]:
    """How often each of `size` pairs is in each resample: blocks of (up to R, N)."""
    draw = np.random.default_rng(seed)
    rows = max(1, BLOCK_CELLS // size)
    for start in range(0, resamples, rows):
        block = min(rows, resamples - start)
        drawn = draw.integers(0, size, (block, size))
        drawn += np.arange(block)[:, None] * size
        yield np.bincount(drawn.ravel(), minlength=block * size).reshape(block, size).astype(float)


class _Ranks:
    """Mean ranks of (N,) values in any resample."""

    def __init__(self, values: np.ndarray) -> None:
        self._order = np.argsort(values, kind="stable")
        ordered = values[self._order]
        first = np.concatenate([[True], ordered[1:] != ordered[:-1]])
        self._starts = np.flatnonzero(first)  # (V,)
        self._group = np.empty(len(values), int)  # (N,) number of a pair's value among the V
        self._group[self._order] = np.cumsum(first) - 1

    def centred(self, counts: np.ndarray) -> np.ndarray:
        """(R, N) counts -> (R, N) ranks less their mean, which is (N + 1) / 2 in each resample."""
        held = np.add.reduceat(counts[:, self._order], self._starts, axis=1)  # (R, V)
        ranks = np.cumsum(held, axis=1) - held / 2
        ranks -= counts.shape[1] / 2
        return np.asarray(ranks[:, self._group])
