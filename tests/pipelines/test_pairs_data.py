"""The graded pairs that come with the package are many, balanced and all different."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from cotbert_core.evaluation import read_pairs
from pipelines.training.dev_sets import BUILT_IN_PAIRS

HALVES = ("dev", "test")


@pytest.fixture(scope="module")
def halves():
    return {name: read_pairs(BUILT_IN_PAIRS, name) for name in HALVES}


def keys(pairs):
    """The pairs without regard to order or case."""
    both = zip(pairs.left, pairs.right, strict=True)
    return [frozenset((a.lower(), b.lower())) for a, b in both]


def test_there_are_at_least_300_in_two_equal_halves(halves):
    assert len(halves["dev"]) == len(halves["test"])
    assert len(read_pairs(BUILT_IN_PAIRS)) == 2 * len(halves["dev"]) >= 300


@pytest.mark.parametrize("half", HALVES)
def test_every_grade_occurs_often(halves, half):
    gold = halves[half].gold
    assert gold.min() >= 0
    assert gold.max() <= 5
    counts = Counter(np.floor(gold + 0.5).astype(int).tolist())  # a half goes up
    assert set(counts) == {0, 1, 2, 3, 4, 5}
    assert min(counts.values()) >= 25, counts


def test_no_pair_occurs_twice_or_in_both_halves(halves):
    found = keys(halves["dev"]) + keys(halves["test"])
    assert [k for k, n in Counter(found).items() if n > 1] == []
    assert min(map(len, found)) == 2, "a sentence is paired with itself"
