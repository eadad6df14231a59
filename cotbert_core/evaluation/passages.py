"""Passages: overlapping pieces of a long text, each with a vector of its own.

A single vector averages over everything in a long text, and an encoder reads only its first tokens.
A search by passages scores a text by the mean of two cosines, that of the text and that of its best
passage.

Letters: N texts, P passages of all of them, D dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cotbert_core.evaluation.keyword_search import WORD

# Words of a passage. By passages of 40, 60 and 80 words all-MiniLM-L6-v2 finds 21.5, 22.6 and
# 21.1 % of 1,000 film reviews (157 words in the median) by one of their sentences, without them
# 18.6 %.
PASSAGE_WORDS = 60
# A passage begins this share of its words after the one before, so that a sentence which is cut by
# one of them is whole in the next.
STEP = 0.75


@dataclass(frozen=True)
class Passages:
    """The passages of N texts, one text after the other. vectors: (P, D). counts: (N,)."""

    vectors: np.ndarray
    counts: np.ndarray

    def take(self, texts: np.ndarray) -> Passages:
        """Return the passages of the texts of these numbers (M,)."""
        counts = self.counts[texts]
        starts = (np.cumsum(self.counts) - self.counts)[texts]
        moved = np.repeat(starts - (np.cumsum(counts) - counts), counts)
        return Passages(self.vectors[moved + np.arange(len(moved))], counts)


def cut_passages(text: str, words: int = PASSAGE_WORDS) -> list[str]:
    """Return the passages of a text, of `words` words each; none if the text has no more than that.

    Words are those of keyword search, so in Chinese, Japanese or Thai letters. The last passage
    ends where the text ends, the first begins where it begins.
    """
    found = [(match.start(), match.end()) for match in WORD.finditer(text)]
    last = len(found) - words
    if last <= 0:
        return []
    starts = [*range(0, last, max(1, int(words * STEP))), last]
    begins = [0, *(found[start][0] for start in starts[1:])]
    ends = [*(found[start + words - 1][1] for start in starts[:-1]), len(text)]
    return [text[begin:end] for begin, end in zip(begins, ends, strict=True)]


def are_long(texts: Sequence[str], words: int = PASSAGE_WORDS) -> bool:
    """Return whether at least half of the texts have passages."""
    return 2 * sum(bool(cut_passages(text, words)) for text in texts) >= len(texts)


def with_best_passage(whole: np.ndarray, passages: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the scores (..., N) of a search by passages.

    whole: cosines (..., N) of a query and the texts. passages: cosines (..., P) of it and their
    passages. counts: (N,) passages of each text; one without any keeps its cosine.
    """
    some = counts > 0
    best = whole.copy()
    best[..., some] = np.maximum.reduceat(passages, (np.cumsum(counts) - counts)[some], axis=-1)
    return np.asarray((whole + best) / 2)
