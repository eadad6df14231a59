"""What several workers compute together, each of them simulated in this process."""

from __future__ import annotations

import numpy as np
import pytest

from cotbert_core.training import distributed


@pytest.mark.parametrize("rank", range(3))
def test_vectors_of_several_workers_are_in_the_order_of_the_sentences(monkeypatch, rank):
    """A dev score would hardly show another order, which is the same for queries and targets."""

    def encode(texts):
        return np.array([[float(text)] for text in texts])

    sentences = [str(number) for number in range(7)]
    shares = [encode(sentences[own::3]) for own in range(3)]
    monkeypatch.setattr(distributed, "world_size", lambda: 3)
    monkeypatch.setattr(distributed, "gather_objects", lambda _: list(shares))
    monkeypatch.setattr(distributed, "rank", lambda: rank)
    found = distributed.encode_together(encode, sentences)
    np.testing.assert_array_equal(found, encode(sentences))
