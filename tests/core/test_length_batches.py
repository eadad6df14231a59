"""Batches of rows of unequal length, against all ways of dividing them."""

from itertools import combinations, pairwise

import numpy as np
import pytest

from cotbert_core.encoder.length_batches import (
    budget_slices,
    cheapest_slices,
    equal_slices,
    length_batches,
    padding,
)


def test_budget_slices_keep_to_the_budget():
    lengths = np.array([50, 9, 9, 8, 3, 3, 3, 1])
    slices = budget_slices(lengths, 20)
    assert [i for start, stop in slices for i in range(start, stop)] == list(range(8))
    assert slices[0] == (0, 1), "a row longer than the budget runs alone"
    assert all((b - a) * lengths[a] <= 20 for a, b in slices[1:])
    assert budget_slices(lengths, None) == [(0, 8)]


@pytest.mark.parametrize("batch_tokens", [1, 13, 40, 133, 10**6])
def test_equal_slices_share_the_tokens(batch_tokens):
    lengths = np.random.default_rng(0).integers(2, 30, 20)
    slices = equal_slices(lengths, batch_tokens)
    assert [i for start, stop in slices for i in range(start, stop)] == list(range(20))
    total, wanted = lengths.sum(), -(-lengths.sum() // batch_tokens)
    assert len(slices) == min(20, wanted) or batch_tokens < 30
    shares = [lengths[start:stop].sum() for start, stop in slices]
    assert max(shares) < total / wanted + lengths.max()
    assert equal_slices(np.array([90, 4, 3, 3]), 50) == [(0, 1), (1, 4)]


def divisions(count):
    """Every way of dividing `count` rows into slices."""
    for number in range(count):
        for cuts in combinations(range(1, count), number):
            ends = [0, *cuts, count]
            yield list(pairwise(ends))


def cost(slices, lengths, start_tokens):
    return sum((stop - start) * int(lengths[start]) + start_tokens for start, stop in slices)


@pytest.mark.parametrize("most_rows", [None, 3])
@pytest.mark.parametrize("start_tokens", [1, 7, 40])
@pytest.mark.parametrize("values", [range(30), (7, 9, 14)], ids=["distinct", "equal"])
def test_no_division_is_cheaper(values, start_tokens, most_rows):
    for seed in range(5):
        lengths = np.sort(np.random.default_rng(seed).choice(values, 9))[::-1]
        slices = cheapest_slices(lengths, 60, start_tokens, most_rows)
        allowed = [
            division
            for division in divisions(9)
            if all((b - a) * lengths[a] <= 60 and b - a <= (most_rows or 9) for a, b in division)
        ]
        assert slices in allowed
        # A row of no tokens counts as one token, which only a template of no tokens could make.
        counted = np.maximum(lengths, 1)
        best = min(cost(division, counted, start_tokens) for division in allowed)
        assert cost(slices, counted, start_tokens) == best


def test_slices_and_padding_by_hand():
    lengths = np.array([100, 10, 10, 10])
    for budget in ((400,), (None, 20)):
        ((rows, width),) = length_batches(lengths, *budget)
        assert (rows.tolist(), width) == ([0, 1, 2, 3], 100)
    assert cheapest_slices(lengths, 400, 20) == [(0, 1), (1, 4)], "not the fewest"
    assert cheapest_slices(lengths, 400, 300) == [(0, 4)], "a start costs more than the padding"
    assert cheapest_slices(lengths, 50, 20)[0] == (0, 1), "a row longer than the budget runs alone"
    assert cheapest_slices(lengths[:0], 400, 20) == []
    unsorted = np.array([10, 100, 10, 10])
    found = [(rows.tolist(), width) for rows, width in length_batches(unsorted, 400, 20)]
    assert found == [([1], 100), ([0, 2, 3], 10)]
    assert padding(unsorted, 400) == (270, 400)
    assert padding(unsorted, 400, 20) == (0, 130)
    assert padding(unsorted, 400, packed=True) == (0, 130)
