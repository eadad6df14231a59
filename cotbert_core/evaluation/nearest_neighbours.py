"""Exact search for the k vectors nearest to each query by cosine, block by block.

Cosines are float32, rounded to DIGITS: their last bits depend on a row's position in its block and
on the number of threads. Rows of equal cosines are ordered by id, whatever the blocks.

Letters: Q queries, N rows of a block, D dimensions, k rows kept for each query.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotbert_core.errors import UserError
from cotbert_core.evaluation.passages import Passages, with_best_passage

# The squared length below which float32 has too few digits for a direction.
LEAST_SQUARE = 1e-30
DIGITS = 6


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
        kept = np.arange(len(self))
        if len(self) > k:
            kept = np.flatnonzero(self.scores >= np.partition(self.scores, -k)[-k])
        order = kept[np.lexsort((self.rows[kept], self.ids[kept], -self.scores[kept]))][:k]
        return Hits(self.scores[order], self.ids[order], self.rows[order])


class Nearest:
    """The running k nearest rows of (Q, D) queries."""

    def __init__(self, queries: np.ndarray, k: int) -> None:
        if k < 1:
            raise UserError(f"top is {k}: give at least 1")
        exact = np.asarray(queries, np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            sizes = np.linalg.norm(exact, axis=1, keepdims=True)
        if not (np.isfinite(sizes) & (sizes > 0)).all():
            raise UserError("the vector of a query is zero or not finite: it has no cosine")
        self._queries = (exact / sizes).astype(np.float32)
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
        near = self._cosines(vectors)
        if passages is not None:
            near = with_best_passage(near, self._cosines(passages.vectors), passages.counts)
        if added is not None:
            near = near + added
        scores = np.round(near.astype(np.float64), DIGITS)
        for number, hits in enumerate(self._hits):
            both = Hits(
                np.concatenate([hits.scores, scores[number]]),
                np.concatenate([hits.ids, ids]),
                np.concatenate([hits.rows, rows]),
            )
            self._hits[number] = both.best(self._k)

    def _cosines(self, vectors: np.ndarray) -> np.ndarray:
        """Return the cosines (Q, N) of the queries and vectors (N, D)."""
        near = (vectors @ self._queries.T / lengths(vectors)[:, None]).T
        return np.asarray(np.clip(near, -1, 1))

    def found(self) -> list[Hits]:
        """Return for each query its nearest rows in all blocks so far."""
        return list(self._hits)
