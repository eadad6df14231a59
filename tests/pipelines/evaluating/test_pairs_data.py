"""The graded pairs that come with the package are many, balanced and all different."""

from __future__ import annotations

from collections import Counter

import numpy as np

from cotbert_core.evaluation.pairs import read_pairs
from pipelines.training.dev_sets import BUILT_IN_PAIRS

HALVES = [read_pairs(BUILT_IN_PAIRS, name) for name in ("dev", "test")]


def test_there_are_at_least_300_in_two_equal_halves():
    assert len(HALVES[0]) == len(HALVES[1])
    assert len(read_pairs(BUILT_IN_PAIRS)) == 2 * len(HALVES[0]) >= 300


def test_every_grade_occurs_often():
    for half in HALVES:
        assert 0 <= half.gold.min() < half.gold.max() <= 5
        grades, counts = np.unique(np.floor(half.gold + 0.5), return_counts=True)  # a half goes up
        assert grades.tolist() == [0, 1, 2, 3, 4, 5]
        assert min(counts) >= 25, counts


def test_no_pair_occurs_twice_or_in_both_halves():
    found = [
        frozenset((a.lower(), b.lower()))
        for half in HALVES
        for a, b in zip(half.left, half.right, strict=True)
    ]
    assert [pair for pair, n in Counter(found).items() if n > 1] == []
    assert min(map(len, found)) == 2, "a sentence is paired with itself"
