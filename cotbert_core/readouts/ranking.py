"""Sentence vectors as ranks (RankEncoder, Seonwoo et al., Findings of ACL 2023).

A sentence is represented by its similarity ranks of a corpus's sentences. Letters: n sentences of
the corpus, M vectors to represent, D their size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotbert_core.errors import UserError

# Rows ranked at a time: with a corpus of 10,000 sentences their indices take 80 MB.
ROWS = 1024


@dataclass(frozen=True)
class Ranking:
    """The order of a corpus by similarity. corpus: (n, D) vectors of unit length."""

    corpus: np.ndarray

    @classmethod
    def fit(cls, vectors: np.ndarray) -> Ranking:
        """Return the ranking by a corpus with these vectors (n, D); UserError unless n > 1."""
        if len(vectors) < 2:
            raise UserError(f"the corpus to rank by has {len(vectors)} sentence: give at least 2")
        return cls(_unit(vectors))

    def apply(self, vectors: np.ndarray) -> np.ndarray:
        """Return (M, n) float32: the rank of each sentence of the corpus by its cosine with a row.

        A row has mean 0 and length 1, so the product of two rows is the Spearman correlation of
        their cosines. Ties are ranked in the order of the corpus. vectors: (M, D).
        """
        n = len(self.corpus)
        places = np.arange(n, dtype=np.float32) - (n - 1) / 2
        places /= np.linalg.norm(places)
        ranks = np.empty((len(vectors), n), np.float32)
        for start in range(0, len(vectors), ROWS):
            cosines = _unit(vectors[start : start + ROWS]) @ self.corpus.T
            order = np.argsort(cosines, axis=1, kind="stable")
            rows = np.arange(start, start + len(order))[:, None]
            ranks[rows, order] = places
        return ranks


def _unit(vectors: np.ndarray) -> np.ndarray:
    """Return vectors in float32, scaled to length 1; zero vectors stay 0."""
    exact = np.asarray(vectors, np.float32)
    lengths = np.linalg.norm(exact, axis=1, keepdims=True)
    return exact / np.where(lengths == 0, 1, lengths)
