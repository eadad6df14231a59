"""The score without labels of an encoder's searches: by cosine, by passages, and with keywords.

Letters: Q queries, U distinct targets, P passages of distinct targets, D dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from cotbert_core.choices import KEYWORD_WEIGHT
from cotbert_core.evaluation.held_out import (
    HeldOut,
    HeldOutScores,
    search_scores,
    unit_vectors,
)
from cotbert_core.evaluation.keyword_search import (
    KEYWORD_WEIGHTS,
    KeywordScores,
    keyword_scores,
)
from cotbert_core.evaluation.pairs import Encode
from cotbert_core.evaluation.passages import with_best_passage


@dataclass(frozen=True)
class EncoderScores:
    """The scores of an encoder's searches by cosine, and with what is added to the cosines.

    passages, both: those of searches by passages, without and with keyword search; None if the
    targets are not long.
    """

    alone: HeldOutScores
    keywords: HeldOutScores
    passages: HeldOutScores | None = None
    both: HeldOutScores | None = None


def held_out_keywords(held_out: HeldOut) -> KeywordScores:
    """Return the BM25 scores of the queries and the distinct targets."""
    return keyword_scores(held_out.queries, held_out.distinct[0])


def score_searches(
    encode: Encode,
    held_out: HeldOut,
    keywords: KeywordScores,
    for_queries: Encode | None = None,
    dev: HeldOut | None = None,
) -> EncoderScores:
    """Return the scores of an encoder alone, with BM25 added to its cosines, and, if targets are
    long, of both by passages; each distinct text is encoded once.

    for_queries: encodes the queries; None: as other texts. dev: other queries for the same targets,
    which choose the weight of BM25 (KEYWORD_WEIGHTS) for each search by MRR@10; None: the weight is
    KEYWORD_WEIGHT.
    """
    cut = held_out.passages
    counts = np.array([len(passages) for passages in cut], int)
    texts = [*held_out.distinct[0], *chain.from_iterable(cut)]
    asked = [*held_out.queries, *(dev.queries if dev else ())]
    queries, vectors = unit_vectors(encode, for_queries, asked, texts)
    targets, passages = np.split(vectors, [len(held_out.distinct[0])])

    def cosines(queries: np.ndarray) -> list[np.ndarray]:
        whole = queries @ targets.T
        return [whole, with_best_passage(whole, queries @ passages.T, counts)] if cut else [whole]

    def scores(
        one: HeldOut, queries: np.ndarray, words: KeywordScores, weights: Sequence[Sequence[float]]
    ) -> list[list[HeldOutScores]]:
        searches = _searches(cosines, queries, words, weights)
        found = iter(search_scores(one, searches, len(passages)))
        return [[replace(next(found), keyword_weight=w or None) for w in some] for some in weights]

    each = 2 if cut else 1
    best = [KEYWORD_WEIGHT] * each
    if dev:
        tried = [KEYWORD_WEIGHTS] * each
        best = [
            _best(found)
            for found in scores(dev, queries[len(held_out) :], held_out_keywords(dev), tried)
        ]
    found = scores(held_out, queries[: len(held_out)], keywords, [(0.0, weight) for weight in best])
    return EncoderScores(*chain.from_iterable(found))


def _searches(
    cosines: Callable[[np.ndarray], list[np.ndarray]],
    queries: np.ndarray,
    words: KeywordScores,
    weights: Sequence[Sequence[float]],
) -> Callable[[slice], Iterator[np.ndarray]]:
    """Return a function that yields the scores (q, U) of some queries, by each kind of cosine with
    each of its weights."""

    def searches(rows: slice) -> Iterator[np.ndarray]:
        bm25 = words.block(rows)
        for found, some in zip(cosines(queries[rows]), weights, strict=True):
            for weight in some:
                yield found + weight * bm25

    return searches


def _best(found: Sequence[HeldOutScores]) -> float:
    """Return the weight with the best MRR@10; of equal ones that nearest to the default."""

    def order(one: HeldOutScores) -> tuple[float, float]:
        assert one.keyword_weight is not None
        return one.mrr10, -abs(math.log(one.keyword_weight / KEYWORD_WEIGHT))

    weight = max(found, key=order).keyword_weight
    assert weight is not None
    return weight
