"""Compare the keyword scores of a few queries with BM25 on scikit-learn's counts of all words."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice

import numpy as np

from benchmarks.harness import DisagreementError, Row, interleave
from cotbert_core.evaluation.keyword_search import K1, WORD, B, KeywordCounts, KeywordScores
from pipelines.embedding.parts import BLOCK_ROWS

ROWS, QUERIES = 100_000, 10


def run(texts: Sequence[str], rounds: int) -> list[Row]:
    """Return the seconds to score 100,000 texts for ten queries, including tokenization."""
    rows = [f"{text} {number}" for number, text in enumerate(islice(cycle(texts), ROWS))]
    queries = rows[:: ROWS // QUERIES]
    expected = _all_words(queries, rows)
    if not np.allclose(_ours(queries, rows).block(), expected, atol=1e-9):
        raise DisagreementError("the keyword scores are not those of scikit-learn's counts")
    tasks = {
        "ours": lambda _: _ours(queries, rows).block(),
        "peer": lambda _: _all_words(queries, rows),
    }
    seconds = interleave(tasks, rounds)
    rate = f"same scores, {ROWS / seconds['ours'] / 1e6:.2f} million rows/s"
    name = f"keywords {ROWS} texts, {QUERIES} queries"
    peer = "CountVectorizer, BM25"
    return [Row(name, "KeywordCounts", peer, seconds["ours"], seconds["peer"], None, rate)]


def _ours(queries: Sequence[str], rows: Sequence[str]) -> KeywordScores:
    counts = KeywordCounts(queries)
    for start in range(0, len(rows), BLOCK_ROWS):
        counts.add(rows[start : start + BLOCK_ROWS])
    return counts.scores()


def _all_words(queries: Sequence[str], rows: Sequence[str]) -> np.ndarray:
    """Return the BM25 scores (Q, N), divided by each query's best."""
    from sklearn.feature_extraction.text import CountVectorizer

    counter = CountVectorizer(token_pattern=WORD.pattern, preprocessor=str.casefold)
    counts = counter.fit_transform(rows).tocsc()
    having = np.diff(counts.indptr)
    rarity = np.log1p((len(rows) - having + 0.5) / (having + 0.5))
    lengths = np.asarray(counts.sum(axis=1)).ravel()
    damping = K1 * (1 - B + B * lengths / lengths.mean())
    scores = np.zeros((len(queries), len(rows)))
    for number, query in enumerate(queries):
        for word in counter.transform([query]).indices:
            column = counts[:, word].toarray().ravel()
            scores[number] += rarity[word] * column * (K1 + 1) / (column + damping)
    return np.asarray(scores / scores.max(axis=1, keepdims=True))
