"""The k vectors nearest to each query by cosine, exactly, block by block.

Q queries, N rows of a block, D dimensions, k rows kept of each query. A matrix product in float32
finds the rows that can be among the k; those alone are scored again in float64, one row like
another, since the product's last bits depend on where in a block a row lies and on the number of
threads. So equal vectors have equal scores and the k rows are the same however the rows are cut.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotbert_core.errors import UserError

# The square of a length below which float32 has too few digits left for a direction.
LEAST_SQUARE = 1e-30
# What float32 rounds away of a number, relative to it.
ROUNDING = 2.0**-24


def lengths(vectors: np.ndarray) -> np.ndarray:
    """(N, D) float32 -> (N,) Euclidean lengths; NaN for a vector that has no direction.

    That is one of zeros, one shorter than 1e-15, one that holds a NaN or infinity, and one whose
    square float32 does not hold.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.einsum("nd,nd->n", vectors, vectors)
        usable = np.isfinite(squares) & (squares > LEAST_SQUARE)
        return np.sqrt(np.where(usable, squares, np.nan))


@dataclass(frozen=True)
class Hits:
    """The nearest rows of one query, best first, (n,) with n <= k: cosine, id and row number."""

    scores: np.ndarray
    ids: np.ndarray
    rows: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)

    def best(self, k: int) -> Hits:
        """The first k by falling score; equal scores by id, equal ids by row number."""
        order = np.lexsort((self.rows, self.ids, -self.scores))[:k]
        return Hits(self.scores[order], self.ids[order], self.rows[order])

    def joined(self, other: Hits) -> Hits:
        return Hits(
            np.concatenate([self.scores, other.scores]),
            np.concatenate([self.ids, other.ids]),
            np.concatenate([self.rows, other.rows]),
        )


class Nearest:
    """The running k nearest rows of (Q, D) queries."""

    def __init__(self, queries: np.ndarray, k: int) -> None:
        if k < 1:
            raise UserError(f"top is {k}: give at least 1")
        exact = np.asarray(queries, np.float64)
        sizes = _lengths(exact)[:, None]
        if not (np.isfinite(sizes) & (sizes > 0)).all():
            raise UserError("the vector of a query is zero or not finite: it has no cosine")
        self._exact = exact / sizes
        self._queries = self._exact.astype(np.float32)
        self._k = k
        empty = np.empty(0, np.int64)
        self._hits = [Hits(np.empty(0), empty, empty) for _ in exact]

    def add(self, ids: np.ndarray, rows: np.ndarray, vectors: np.ndarray) -> None:
        """A block: (N,) int64 ids and row numbers, (N, D) float32 vectors that have a direction."""
        near = (vectors @ self._queries.T) / lengths(vectors)[:, None]
        # The sums' error is at most D roundings each for product and length; a few are added for
        # the square root, the division and the query's own rounding.
        margin = (2 * vectors.shape[1] + 8) * ROUNDING
        for number, hits in enumerate(self._hits):
            chosen = np.flatnonzero(near[:, number] >= self._least(near[:, number], hits, margin))
            if len(chosen):
                scores = cosines(vectors[chosen], self._exact[number])
                block = Hits(scores, ids[chosen], rows[chosen])
                self._hits[number] = hits.joined(block).best(self._k)

    def _least(self, near: np.ndarray, hits: Hits, margin: float) -> float:
        """The least float32 cosine of a row that can be among the k."""
        if len(hits) == self._k:
            return float(hits.scores[-1]) - margin
        if len(near) <= self._k:
            return -np.inf
        # Of the block's own k best the last may be too high, and another row too low.
        return float(np.partition(near, -self._k)[-self._k]) - 2 * margin

    def found(self) -> list[Hits]:
        """For each query its nearest rows of all blocks so far."""
        return list(self._hits)


def cosines(vectors: np.ndarray, query: np.ndarray) -> np.ndarray:
    """(N,) cosines of (N, D) vectors with a (D,) query of unit length, in float64, row by row."""
    exact = vectors.astype(np.float64)
    scores: np.ndarray = (exact * query).sum(axis=1) / _lengths(exact)
    clipped: np.ndarray = np.clip(scores, -1.0, 1.0)
    return clipped


def _lengths(vectors: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore", over="ignore"):
        found: np.ndarray = np.sqrt((vectors * vectors).sum(axis=1))
    return found
