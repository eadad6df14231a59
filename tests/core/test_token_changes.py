"""Repeated, deleted, shuffled and inverted tokens, against lists."""

from __future__ import annotations

import numpy as np
import pytest

from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.training.token_changes import delete_sampled, invert, repeat_sampled, shuffle

LENGTHS = [3, 0, 1, 6, 0]


@pytest.fixture
def rows():
    random = np.random.default_rng(0)
    return Ragged.from_lists([random.permutation(100)[:n] for n in LENGTHS])


@pytest.fixture
def numbers():
    return np.random.default_rng(1).random(sum(LENGTHS))


def of_rows(rows, numbers):
    """Each row's tokens with their numbers."""
    return [
        list(zip(row.tolist(), numbers[start:].tolist(), strict=False))
        for row, start in zip(rows, rows.offsets, strict=False)
    ]


@pytest.mark.parametrize("counts", [[1, 0, 1, 2, 0], [0, 0, 0, 0, 0], [3, 0, 1, 6, 0]])
def test_tokens_with_the_smallest_numbers_are_repeated_or_deleted(rows, numbers, counts):
    repeated = repeat_sampled(rows, np.array(counts), numbers)
    deleted = delete_sampled(rows, np.array(counts), numbers)
    for tokens, count, twice, fewer in zip(
        of_rows(rows, numbers), counts, repeated, deleted, strict=True
    ):
        chosen = {token for token, _ in sorted(tokens, key=lambda pair: pair[1])[:count]}
        assert twice.tolist() == [
            t for token, _ in tokens for t in [token] * (1 + (token in chosen))
        ]
        assert fewer.tolist() == [token for token, _ in tokens if token not in chosen]


def test_tokens_are_in_the_order_of_their_numbers(rows, numbers):
    for tokens, row in zip(of_rows(rows, numbers), shuffle(rows, numbers), strict=True):
        assert row.tolist() == [t for t, _ in sorted(tokens, key=lambda pair: pair[1])]


def test_tokens_are_inverted(rows):
    for row, turned in zip(rows, invert(rows), strict=True):
        assert turned.tolist() == row.tolist()[::-1]
    assert len(invert(Ragged.from_lists([]))) == 0
