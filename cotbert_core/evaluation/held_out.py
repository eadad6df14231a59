"""A score without labels: how often a sentence finds the document that it was taken from.

A query is a sentence that was held out of a document, its target is the rest of that document, and
it is searched among the targets of all held-out documents by cosine. That is a proxy for retrieval
and similarity in the same domain (docs/evaluation.md). What needs no encoder, keyword search, is
scored on the same queries.

Letters: Q queries, N targets, U distinct targets, C documents, D dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cotbert_core.evaluation.geometry import unit_rows
from cotbert_core.evaluation.keyword_search import BLOCK_CELLS, KeywordScores, keyword_scores
from cotbert_core.evaluation.pairs import EncodeFunctions, encode_distinct
from cotbert_core.evaluation.passages import are_long, cut_passages

# Cosines that are closer than this are a tie. Vectors are float32: the same text in another batch
# has a cosine that is different by about 1e-7.
TIE = 1e-6
MRR_DEPTH = 10


@dataclass(frozen=True)
class HeldOut:
    """Queries, and the targets among which each is searched.

    queries: Q texts. targets: N texts, also those of queries that are not here. rows: (Q,) index of
    each query's own target. documents: (N,) id of each target's document; None if each target is a
    document. Targets of one document differ in the sentence that is left out, the query: each query
    is searched among its own target and the first one of every other document.
    """

    queries: list[str]
    targets: list[str]
    rows: np.ndarray
    documents: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.queries)

    def joined(self, others: HeldOut) -> HeldOut:
        """Return these queries followed by others for the same targets."""
        rows = np.concatenate([self.rows, others.rows])
        return replace(self, queries=[*self.queries, *others.queries], rows=rows)

    @cached_property
    def of_documents(self) -> tuple[np.ndarray, np.ndarray]:
        """The index of each document's first target (C,), and the document (N,) of each target."""
        if self.documents is None:
            return np.arange(len(self.targets)), np.arange(len(self.targets))
        _, first, document = np.unique(self.documents, return_index=True, return_inverse=True)
        order = np.argsort(first)
        return first[order], np.argsort(order)[document]

    @property
    def searched(self) -> int:
        """The number of targets among which each query is searched."""
        return len(self.of_documents[0])

    @property
    def query_documents(self) -> np.ndarray:
        """The number (Q,) of each query's document."""
        return np.asarray(self.of_documents[1][self.rows])

    @cached_property
    def distinct(self) -> tuple[list[str], np.ndarray]:
        """The U distinct targets that are compared, and the number (Q,) of each query's own.

        Targets of the same text are one: a query that finds a twin of its own has found it.
        """
        rows = np.union1d(self.of_documents[0], self.rows)
        texts = list(dict.fromkeys(self.targets[row] for row in rows))
        return texts, self._numbers(texts, self.rows)

    @cached_property
    def competing(self) -> tuple[np.ndarray, np.ndarray]:
        """The numbers of the distinct targets that are the first of a document, (c,), and of that
        of each query's own document, (Q,)."""
        first = self._numbers(self.distinct[0], self.of_documents[0])
        return np.unique(first), first[self.query_documents]

    def _numbers(self, texts: Sequence[str], rows: np.ndarray) -> np.ndarray:
        """Return the numbers (n,) among `texts` of the targets with these indices."""
        place = {text: number for number, text in enumerate(texts)}
        return np.array([place[self.targets[row]] for row in rows], int)

    @cached_property
    def keywords(self) -> KeywordScores:
        """The BM25 scores of the queries and the distinct targets.

        Each document is counted once, by its first target, and a query's best is that of the
        targets among which it is searched: the others of its document contain the query itself.
        """
        (texts, own), (others, left_out) = self.distinct, self.competing
        scores = keyword_scores(self.queries, texts, others)
        best = np.ones(len(self))
        for rows in _blocks(range(len(self)), len(texts)):
            shares = scores.block(rows)
            query = np.arange(len(shares))
            mine = shares[query, own[rows]]
            shares[query, left_out[rows]] = 0
            best[rows] = scores.best[rows] * np.maximum(mine, shares[:, others].max(axis=1))
        return replace(scores, best=np.where(best > 0, best, 1.0))

    @cached_property
    def passages(self) -> list[list[str]]:
        """The passages of each distinct target; empty if fewer than half of the documents have any.

        Each document is counted once, by its first target.
        """
        if not are_long([self.targets[row] for row in self.of_documents[0]]):
            return []
        return [cut_passages(text) for text in self.distinct[0]]


@dataclass(frozen=True)
class HeldOutScores:
    """The scores of a search for Q queries.

    ranks: (Q,) of each query's own target, from 1. keyword_weight: that of the BM25 that was added.
    """

    ranks: np.ndarray
    keyword_weight: float | None = None

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


def score_held_out(encode: EncodeFunctions, held_out: HeldOut) -> HeldOutScores:
    """Return the scores of an encoder; each distinct text is encoded once."""
    queries, targets = unit_vectors(encode, held_out.queries, held_out.distinct[0])
    return search_scores(held_out, lambda rows: [queries[rows] @ targets.T])[0]


def score_keywords(held_out: HeldOut) -> HeldOutScores:
    """Return the scores of keyword search, which needs no encoder."""
    return search_scores(held_out, lambda rows: [held_out.keywords.block(rows)])[0]


def unit_vectors(
    encode: EncodeFunctions, queries: Sequence[str], texts: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the vectors of Q queries and of texts, of unit length; see score_held_out."""
    if encode.queries is None:
        asked, searched = encode_distinct(encode.texts, queries, texts)
    else:
        (asked,) = encode_distinct(encode.queries, queries)
        (searched,) = encode_distinct(encode.texts, texts)
    return unit_rows(asked), unit_rows(searched)


def search_scores(
    held_out: HeldOut,
    searches: Callable[[slice], Iterable[np.ndarray]],
    passages: int = 0,
    queries: range | None = None,
) -> list[HeldOutScores]:
    """Return the scores of several searches.

    searches: returns for some queries the scores (q, U) of each search. passages: their number,
    which decides how many queries are searched at a time. queries: numbers of those that are
    searched (None: all).
    """
    texts, own = held_out.distinct
    others, left_out = held_out.competing
    ranks = []
    asked = range(len(held_out)) if queries is None else queries
    for rows in _blocks(asked, max(len(texts), passages)):
        some = own[rows], left_out[rows], others
        ranks.append([_own_ranks(scores, *some) for scores in searches(rows)])
    return [HeldOutScores(np.concatenate(parts)) for parts in zip(*ranks, strict=True)]


def _blocks(queries: range, cells: int) -> Iterator[slice]:
    """Yield slices of queries whose scores, `cells` for each, are in memory at once."""
    step = max(1, BLOCK_CELLS // cells)
    for start in range(queries.start, queries.stop, step):
        yield slice(start, min(start + step, queries.stop))


def _own_ranks(
    scores: np.ndarray, own: np.ndarray, left_out: np.ndarray, others: np.ndarray
) -> np.ndarray:
    """Return the ranks (q,) of each query's own target by scores (q, U).

    own: (q,) that target. left_out: (q,) the first target of its document. others: (c,) the targets
    that it competes with, except these two. A tie with another target counts against the query.
    """
    rows = np.arange(len(scores))
    mine = scores[rows, own][:, None]
    nearer = scores >= mine - TIE
    nearer[rows, own] = nearer[rows, left_out] = False
    if len(others) < scores.shape[1]:
        nearer = nearer[:, others]
    return np.asarray(1 + nearer.sum(axis=1))
