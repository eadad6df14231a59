"""Exact search for the k vectors nearest to each query by cosine, block by block.

Letters: Q queries, N rows of a block, D dimensions, k rows kept for each query. A matrix product in
float32 finds the rows that can be among the k. Only those are scored again in float64, row by row,
because the last bits of the product depend on a row's position in its block and on the number of
threads. So equal vectors have equal scores, and the k rows do not depend on the blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotbert_core.errors import UserError
from cotbert_core.evaluation.passages import Passages, with_best_passage

# The squared length below which float32 has too few digits for a direction.
LEAST_SQUARE = 1e-30
# The relative rounding error of float32.
ROUNDING = 2.0**-24


def lengths(vectors: np.ndarray) -> np.ndarray:
    """Return the Euclidean lengths (N,) of float32 vectors (N, D), NaN for unusable vectors.

    Unusable are vectors of zeros, vectors shorter than 1e-15, vectors with NaN or infinity, and
    vectors whose squared length overflows float32.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.einsum("nd,nd->n", vectors, vectors)
        usable = np.isfinite(squares) & (squares > LEAST_SQUARE)
        return np.sqrt(np.where(usable, squares, np.nan))


@dataclass(frozen=True)
class Hits:
    """The nearest rows of one query, best first: score, id and row number, (n,) with n <= k."""

    scores: np.ndarray
    ids: np.ndarray
    rows: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)

    def best(self, k: int) -> Hits:
        """Return the k best hits; equal scores are ordered by id, equal ids by row number."""
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

    def add(
        self,
        ids: np.ndarray,
        rows: np.ndarray,
        vectors: np.ndarray,
        added: np.ndarray | None = None,
        passages: Passages | None = None,
    ) -> None:
        """Add a block. ids, rows: (N,) int64. vectors: (N, D) float32, all usable (`lengths`).
        added: (Q, N) float64, what is added to the cosines. passages: of the N rows, all usable;
        the best one of a row counts as much as the row."""
        near = self._near(vectors)
        if passages is not None:
            near = with_best_passage(near, self._near(passages.vectors), passages.counts)
        if added is not None:
            near = near + added
        # The error of the sums is at most D roundings each for product and length, plus a few for
        # the square root, the division and the rounding of the query.
        margin = (2 * vectors.shape[1] + 8) * ROUNDING
        for number, hits in enumerate(self._hits):
            chosen = np.flatnonzero(near[number] >= self._least(near[number], hits, margin))
            if len(chosen):
                query = self._exact[number]
                scores = cosines(vectors[chosen], query)
                if passages is not None:
                    own = passages.take(chosen)
                    scores = with_best_passage(scores, cosines(own.vectors, query), own.counts)
                if added is not None:
                    scores = scores + added[number, chosen]
                block = Hits(scores, ids[chosen], rows[chosen])
                self._hits[number] = hits.joined(block).best(self._k)

    def _near(self, vectors: np.ndarray) -> np.ndarray:
        """Return the float32 cosines (Q, N) of the queries and vectors (N, D)."""
        return np.asarray((vectors @ self._queries.T / lengths(vectors)[:, None]).T)

    def _least(self, near: np.ndarray, hits: Hits, margin: float) -> float:
        """Return the smallest float32 cosine of a row that can be among the k."""
        if len(hits) == self._k:
            return float(hits.scores[-1]) - margin
        if len(near) <= self._k:
            return -np.inf
        # The last of the block's own k best may be too high, and another row too low.
        return float(np.partition(near, -self._k)[-self._k]) - 2 * margin

    def found(self) -> list[Hits]:
        """Return for each query its nearest rows in all blocks so far."""
        return list(self._hits)


def cosines(vectors: np.ndarray, query: np.ndarray) -> np.ndarray:
    """Return the cosines (N,) in float64. vectors: (N, D). query: (D,) of unit length."""
    exact = vectors.astype(np.float64)
    scores: np.ndarray = (exact * query).sum(axis=1) / _lengths(exact)
    clipped: np.ndarray = np.clip(scores, -1.0, 1.0)
    return clipped


def _lengths(vectors: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore", over="ignore"):
        found: np.ndarray = np.sqrt((vectors * vectors).sum(axis=1))
    return found
