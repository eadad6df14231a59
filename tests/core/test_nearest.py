"""The running k nearest against a full sort in float64, with ties, and cases that must differ."""

from __future__ import annotations

import numpy as np
import pytest

from cotbert_core.errors import UserError
from cotbert_core.evaluation.nearest_neighbours import Nearest, lengths

ROWS, DIMENSION = 400, 24


def slow(ids, vectors, query, k, added=None):
    """All rows sorted by falling cosine and what is added to it, then by id, then by row."""

    def score(row):
        vector = vectors[row].astype(np.float64)
        cosine = np.dot(vector, query) / (np.linalg.norm(vector) * np.linalg.norm(query))
        return round(float(cosine) + (0 if added is None else added[row]), 6)

    return sorted(range(len(ids)), key=lambda row: (-score(row), ids[row], row))[:k]


def fast(ids, vectors, queries, k, size, added=None):
    """Row numbers of each query, with blocks of `size` rows."""
    running = Nearest(queries, k)
    rows = np.arange(len(ids))
    for start in range(0, len(ids), size):
        cut = slice(start, start + size)
        running.add(ids[cut], rows[cut], vectors[cut], None if added is None else added[:, cut])
    return running.found()


@pytest.fixture
def data():
    """Ids in no order, vectors of many lengths, every fifth one a copy of another."""
    random = np.random.default_rng(0)
    vectors = random.standard_normal((ROWS, DIMENSION)).astype(np.float32)
    vectors *= random.uniform(1e-3, 1e3, (ROWS, 1)).astype(np.float32)
    vectors[::5] = vectors[1]
    ids = random.permutation(ROWS).astype(np.int64) - 100
    queries = random.standard_normal((3, DIMENSION))
    queries[2] = vectors[1]  # whose nearest are the copies, all equal
    return ids, vectors, queries


@pytest.mark.parametrize("size", [1, 7, 64, ROWS, 10 * ROWS])
@pytest.mark.parametrize("k", [1, 10, 85, ROWS, ROWS + 5])
def test_the_running_k_are_those_of_a_full_sort(data, size, k):
    ids, vectors, queries = data
    for query, hits in zip(queries, fast(ids, vectors, queries, k, size), strict=True):
        expected = slow(ids, vectors, query, k)
        assert hits.rows.tolist() == expected
        assert hits.ids.tolist() == ids[expected].tolist()
        assert len(hits) == min(k, ROWS)
        assert (np.diff(hits.scores) <= 0).all()


def test_what_is_added_to_a_cosine_counts_as_much(data):
    ids, vectors, queries = data
    added = 0.3 * np.random.default_rng(1).uniform(size=(3, ROWS))
    found = fast(ids, vectors, queries, 9, 50, added)
    for query, more, hits in zip(queries, added, found, strict=True):
        expected = slow(ids, vectors, query, 9, more)
        assert hits.rows.tolist() == expected != slow(ids, vectors, query, 9)
        norms = np.linalg.norm(vectors[expected], axis=1) * np.linalg.norm(query)
        sums = vectors[expected] @ query / norms + more[expected]
        np.testing.assert_allclose(hits.scores, sums, atol=1e-6)


def test_ties_go_by_id_and_equal_ids_by_row(data):
    ids, vectors, queries = data
    (_, _, hits) = fast(ids, vectors, queries, 20, 33)
    assert hits.scores == pytest.approx(1)
    assert len(set(hits.scores.tolist())) == 1
    copies = [1, *range(0, ROWS, 5)]
    assert hits.ids.tolist() == sorted(ids[copies].tolist())[:20]
    equal = np.zeros(ROWS, np.int64)
    assert fast(equal, vectors, queries, 20, 33)[2].rows.tolist() == sorted(copies)[:20]


def test_cosines_that_float32_cannot_tell_apart_are_equal():
    base = np.random.default_rng(1).standard_normal(384)
    vectors = np.stack([base, base * (1 + 1e-8), base + 1e-5, -base]).astype(np.float32)
    ids = np.array([3, 1, 2, 0])
    (hits,) = fast(ids, vectors, base[None], 4, 1)
    assert hits.ids.tolist() == [1, 2, 3, 0]
    assert hits.scores.tolist() == [1, 1, 1, -1]


def test_an_equal_vector_scores_1_though_short_or_long():
    for length in (1e-12, 1.0, 1e15):
        vector = np.full((1, 768), length, np.float32)
        (hits,) = fast(np.array([1]), vector, vector, 1, 1)
        assert hits.scores.tolist() == pytest.approx([1], abs=2e-6)


def test_vectors_without_a_direction_have_no_length():
    rows = [[3, 4], [0, 0], [np.nan, 1], [np.inf, 1], [1e-20, 0], [3e38, 3e38], [0, -2]]
    found = lengths(np.array(rows, np.float32))
    np.testing.assert_allclose(found, [5, *[np.nan] * 5, 2])


def test_what_cannot_be_searched():
    for query in ([0.0, 0.0], [np.nan, 1.0], [np.inf, 1.0]):
        with pytest.raises(UserError, match="the vector of a query is zero or not finite"):
            Nearest(np.array([query]), 1)
    with pytest.raises(UserError, match="top is 0"):
        Nearest(np.ones((1, 2)), 0)
    (hits,) = Nearest(np.ones((1, 2)), 3).found()
    assert len(hits) == 0
