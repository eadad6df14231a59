"""Keyword search by BM25: what finds texts without any encoder, and what finds more beside one.

BM25 is that of Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond"
(2009), section 3, with an inverse document frequency that is never negative. Each distinct word of
a query counts once; words are neither stemmed nor left out.

Letters: Q queries, N texts, W distinct words of all queries.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import regex

if TYPE_CHECKING:  # 0.2 s, in every process that opens embeddings
    from scipy.sparse import csr_array

# A letter of Thai, Lao, Burmese, Khmer, Chinese or Japanese is a word: these scripts separate none.
NO_BLANKS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff"
# Unlike re, regex counts the marks of Hindi, Tamil or vowelled Arabic as parts of a word; re takes
# half the time.
WORD = regex.compile(rf"[{NO_BLANKS}]|[^\W{NO_BLANKS}]+")
_ASCII_WORD = re.compile(r"\w+")
# Two such letters in a row count as a word too: of 1,997 sentences of Chinese reviews 13.4 % find
# their own review first, by single letters alone 12.1 %, by pairs alone 11.2 %.
_LETTERS = re.compile(rf"[{NO_BLANKS}]{{2,}}")
# The usual values. On docstrings and film reviews K1 = 1.5 changed the share found first by -0.7 to
# +0.4 points; K1 = 0.9 with B = 0.4 lost 2.0 to 4.2.
K1, B = 1.2, 0.75
# The weights of BM25 beside a cosine among which dev queries choose. Most queries were found first
# with 0.15 by an encoder adapted to docstrings, with 0.3 by the untouched one, with 0.5 among 1,000
# film reviews, and with 0.4 to 1 among 39.
KEYWORD_WEIGHTS = (0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0)
# Scores in memory at once: 16 MB in float64.
BLOCK_CELLS = 2_000_000


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case, with repetitions."""
    folded = unicodedata.normalize("NFC", text.casefold())
    if folded.isascii():
        return _ASCII_WORD.findall(folded)
    runs = _LETTERS.findall(folded)
    pairs = [run[place : place + 2] for run in runs for place in range(len(run) - 1)]
    return [*WORD.findall(folded), *pairs]


class KeywordCounts:
    """How often the words of Q queries stand in texts that are added block by block.

    Other words only count towards the length of a text, so memory grows with the matches.
    """

    def __init__(self, queries: Sequence[str]) -> None:
        from scipy.sparse import csr_array

        self._place: dict[str, int] = {}
        asked = [dict.fromkeys(words_of(query)) for query in queries]
        columns = [self._place.setdefault(w, len(self._place)) for words in asked for w in words]
        starts = np.cumsum([0, *map(len, asked)])
        shape = (len(asked), len(self._place))
        self._asked = csr_array((np.ones(len(columns)), columns, starts), shape=shape)
        self._lengths: list[np.ndarray] = []
        self._found: list[np.ndarray] = []
        self._matches: list[np.ndarray] = []

    def add(self, texts: Sequence[str]) -> None:
        """Count the words of a block of texts, whose numbers follow those of the block before."""
        lengths, per_text, places = [], [], []
        for text in texts:
            words = words_of(text)
            found = [place for place in map(self._place.get, words) if place is not None]
            lengths.append(len(words))
            per_text.append(len(found))
            places += found
        cells = np.repeat(np.arange(len(lengths)), per_text) * max(1, len(self._place))
        distinct, counts = np.unique(cells + np.array(places, int), return_counts=True)
        row, place = np.divmod(distinct, max(1, len(self._place)))
        self._lengths.append(np.array(lengths, np.int32))
        self._found.append(np.bincount(row, minlength=len(lengths)))
        self._matches.append(np.stack([place, counts], axis=1).astype(np.int32))

    def scores(self, collection: np.ndarray | None = None) -> KeywordScores:
        """Return the scores of all N texts that were added.

        collection: numbers of the texts that count for how rare a word is and for the mean length
        (None: all); with several variants of a document, one of each.
        """
        from scipy.sparse import csr_array

        lengths = np.concatenate([np.empty(0, np.int32), *self._lengths])
        starts = np.cumsum(np.concatenate([[0], *self._found]), dtype=np.int64)
        matches = np.concatenate([np.empty((0, 2), np.int32), *self._matches])
        columns, counts = matches[:, 0], matches[:, 1]
        counted = np.zeros(len(lengths), bool)
        counted[slice(None) if collection is None else collection] = True
        per_text = np.diff(starts)
        with_word = np.bincount(columns[np.repeat(counted, per_text)], minlength=len(self._place))
        rarity = np.log1p((counted.sum() - with_word + 0.5) / (with_word + 0.5))
        mean = float(lengths[counted].mean()) if counted.any() else 1.0
        damped = counts + K1 * (1 - B + B * np.repeat(lengths / max(1.0, mean), per_text))
        weights = rarity[columns] * counts * (K1 + 1) / damped
        shape = (len(lengths), len(self._place))
        return KeywordScores.of(self._asked, csr_array((weights, columns, starts), shape=shape))


@dataclass(frozen=True)
class KeywordScores:
    """BM25 of Q queries and N texts, as a share of the query's best.

    asked: (Q, W), 1 where a query has a word. weights: (N, W) of the words in the texts. best: (Q,)
    the largest BM25 of each query, 1 where no text has any of its words.
    """

    asked: csr_array
    weights: csr_array
    best: np.ndarray

    @classmethod
    def of(cls, asked: csr_array, weights: csr_array) -> KeywordScores:
        best, step = np.zeros(asked.shape[0]), max(1, BLOCK_CELLS // max(1, asked.shape[0]))
        for start in range(0, weights.shape[0], step):
            some = asked @ weights[start : start + step].T
            best = np.maximum(best, some.max(axis=1).toarray().ravel())
        return cls(asked, weights, np.where(best > 0, best, 1.0))

    def block(
        self, queries: slice = slice(None), texts: slice | np.ndarray = slice(None)
    ) -> np.ndarray:
        """Return the scores (q, n), from 0 to 1, of some queries and some texts, or their numbers
        (n,)."""
        bm25 = (self.asked[queries] @ self.weights[texts].T).toarray()
        return np.asarray(bm25 / self.best[queries][:, None])

    def reordered(self, numbers: np.ndarray) -> KeywordScores:
        """Return the scores of the texts of these numbers (M,), as a share of the best of them; -1
        is a text without any word."""
        from scipy.sparse import csr_array, vstack

        none = csr_array((1, self.weights.shape[1]))
        return self.of(self.asked, vstack([self.weights, none]).tocsr()[numbers])


def keyword_scores(
    queries: Sequence[str], texts: Sequence[str], collection: np.ndarray | None = None
) -> KeywordScores:
    """Return the scores of Q queries and N texts that are in memory, as KeywordCounts.scores."""
    counts = KeywordCounts(queries)
    counts.add(texts)
    return counts.scores(collection)
