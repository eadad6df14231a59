"""A score without labels: how often a sentence finds the document that it was taken from.

A query is a sentence that was held out of a document, its target is the rest of that document, and
it is searched among the targets of all held-out documents by cosine. That is a proxy for retrieval
and similarity in the same domain (docs/evaluation.md). What needs no encoder, keyword search, is
scored on the same queries, and so are both together.

Letters: Q queries, N targets, U distinct targets, D dimensions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cotbert_core.evaluation.geometry import unit_rows
from cotbert_core.evaluation.keyword_search import (
    BLOCK_CELLS,
    KEYWORD_WEIGHT,
    KeywordScores,
    keyword_scores,
)
from cotbert_core.evaluation.pairs import Encode, encode_distinct

# Cosines that are closer than this are a tie. Vectors are float32: the same text in another batch
# has a cosine that is different by about 1e-7.
TIE = 1e-6
MRR_DEPTH = 10
# The scores (q, U) of some queries and all distinct targets.
Block = Callable[[slice], np.ndarray]


@dataclass(frozen=True)
class HeldOut:
    """Queries, and the targets among which each is searched.

    queries: Q texts. targets: N texts, also those of queries that are not here. rows: (Q,) index of
    each query's own target.
    """

    queries: list[str]
    targets: list[str]
    rows: np.ndarray

    def __len__(self) -> int:
        return len(self.queries)

    @cached_property
    def distinct(self) -> tuple[list[str], np.ndarray]:
        """The U distinct targets, and the number (Q,) of each query's own among them.

        Targets of the same text are one: a query that finds a twin of its own has found it.
        """
        place = {text: number for number, text in enumerate(dict.fromkeys(self.targets))}
        return list(place), np.array([place[self.targets[row]] for row in self.rows], int)


@dataclass(frozen=True)
class HeldOutScores:
    """The scores of a search for Q queries. ranks: (Q,) of each query's own target, from 1."""

    ranks: np.ndarray

    @property
    def found(self) -> np.ndarray:
        """(Q,) 1.0 for a query that finds its target first, otherwise 0.0."""
        return np.asarray(self.ranks == 1, float)

    @property
    def reciprocal(self) -> np.ndarray:
        """(Q,) reciprocal ranks, 0 for a rank above 10."""
        return np.where(self.ranks <= MRR_DEPTH, 1.0 / self.ranks, 0.0)

    @property
    def found_first(self) -> float:
        """Queries whose target is ranked first, x 100."""
        return 100 * float(self.found.mean())

    @property
    def mrr10(self) -> float:
        """The mean reciprocal rank x 100, 0 for a rank above 10."""
        return 100 * float(self.reciprocal.mean())


def score_held_out(encode: Encode, held_out: HeldOut) -> HeldOutScores:
    """Return the scores of an encoder; each distinct text is encoded once."""
    return _scores(held_out, _cosines(encode, held_out))[0]


def score_keywords(held_out: HeldOut, keywords: KeywordScores) -> HeldOutScores:
    """Return the scores of keyword search, which needs no encoder."""
    return _scores(held_out, keywords.block)[0]


def score_with_keywords(
    encode: Encode, held_out: HeldOut, keywords: KeywordScores
) -> tuple[HeldOutScores, HeldOutScores]:
    """Return the scores of an encoder alone, and of its cosines with KEYWORD_WEIGHT times BM25
    added to them; each distinct text is encoded once."""

    def weighted(rows: slice) -> np.ndarray:
        return KEYWORD_WEIGHT * keywords.block(rows)

    alone, together = _scores(held_out, _cosines(encode, held_out), weighted)
    return alone, together


def held_out_keywords(held_out: HeldOut) -> KeywordScores:
    """Return the BM25 scores of the queries and the distinct targets."""
    return keyword_scores(held_out.queries, held_out.distinct[0])


def _cosines(encode: Encode, held_out: HeldOut) -> Block:
    texts, _ = held_out.distinct
    queries, targets = map(unit_rows, encode_distinct(encode, held_out.queries, texts))
    return lambda rows: np.asarray(queries[rows] @ targets.T)


def _scores(held_out: HeldOut, *added: Block) -> list[HeldOutScores]:
    """Return the scores of searches by the first of `added`, by the sum of two, and so on."""
    texts, own = held_out.distinct
    ranks = np.empty((len(added), len(held_out)), int)
    step = max(1, BLOCK_CELLS // len(texts))
    for start in range(0, len(held_out), step):
        rows, total = slice(start, start + step), np.zeros(())
        for number, block in enumerate(added):
            total = total + block(rows)
            ranks[number, rows] = _own_ranks(total, own[rows])
    return [HeldOutScores(one) for one in ranks]


def _own_ranks(scores: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Return the ranks (q,) of each query's own target by scores (q, U).

    A tie with another target, or a score of NaN, counts against the query.
    """
    mine = scores[np.arange(len(scores)), own][:, None]
    # Among all targets that are not further away the own one counts itself.
    return np.asarray(scores.shape[1] - (scores < mine - TIE).sum(axis=1))
