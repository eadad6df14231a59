"""Ranks of a corpus as vectors, against scipy's correlation of ranks."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

from cotbert_core.errors import UserError
from cotbert_core.readouts import ranking
from cotbert_core.readouts.ranking import Ranking


@pytest.fixture
def corpus():
    return np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32) * 3


@pytest.fixture
def vectors():
    return np.random.default_rng(1).normal(size=(5, 8)).astype(np.float32) + 0.5


def test_products_are_spearman_s_correlations(corpus, vectors, monkeypatch):
    monkeypatch.setattr(ranking, "ROWS", 2)
    ranks = Ranking.fit(corpus).apply(vectors)
    assert (ranks.shape, ranks.dtype) == ((5, 40), np.float32)
    cosines = [
        [float(v @ c / (np.linalg.norm(v) * np.linalg.norm(c))) for c in corpus] for v in vectors
    ]
    for i in range(5):
        for j in range(5):
            expected = spearmanr(cosines[i], cosines[j]).statistic
            assert ranks[i] @ ranks[j] == pytest.approx(expected, abs=1e-5)
    cosine = vectors[0] @ vectors[1] / np.linalg.norm(vectors[0]) / np.linalg.norm(vectors[1])
    assert abs(ranks[0] @ ranks[1] - cosine) > 1e-3, "premise"


def test_lengths_do_not_matter(corpus, vectors):
    by = Ranking.fit(corpus)
    scaled = vectors * np.array([[1], [2], [10], [0.1], [1000]], np.float32)
    np.testing.assert_array_equal(by.apply(scaled), by.apply(vectors))
    by_length = np.argsort(vectors @ corpus.T, axis=1)
    assert (by_length != np.argsort(by.apply(vectors), axis=1)).any(), "premise: here they would"


def test_a_corpus_of_one_sentence_is_refused(corpus):
    with pytest.raises(UserError, match="has 1 sentence: give at least 2"):
        Ranking.fit(corpus[:1])


def test_equal_cosines_are_ranked_in_order():
    # Of 16 numbers or fewer numpy keeps the order even by a sort that is not stable.
    ranks = Ranking.fit(np.ones((99, 2))).apply(np.zeros((1, 2)))
    assert ranks[0].tolist() == sorted(ranks[0].tolist())
    assert Ranking.fit(np.ones((3, 2))).apply(np.zeros((0, 2))).shape == (0, 3)
