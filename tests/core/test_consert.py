"""ConSERT: its two views, and losses and gradients against a sentence and a pair at a time."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from made_encoders import with_encoders

from cotbert_core.methods.consert import kept_features, shuffled_positions
from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.training.batches import Batch
from cotbert_core.training.token_numbers import TokenNumbers
from tests.core.slow_reference import assert_same_step, embedded, hidden, power

TEMPERATURE, CUTOFF, STEP = 0.5, 0.3, 3
# What all ways of attention have in common is tested in test_attention.
CASES = [("bert", "cls", "auto"), ("roberta", "mean", "unpadded")]


def erased(model, row, features):
    """(L, D) of one row whose embeddings have lost some features."""
    kept = embedded(model, row) * torch.from_numpy(features)
    return model.encoder(kept).last_hidden_state[0]


def slow_views(model, ends, sentences, seed, read):
    """The vectors (D,) of both views of each sentence."""
    views = [], []
    for sentence in sentences:
        alone = Ragged.from_lists([sentence])
        numbers, row = TokenNumbers(alone, seed, STEP), [ends[0], *map(int, sentence), ends[1]]
        (places,) = shuffled_positions(numbers, np.array([len(row)]))
        (features,) = kept_features(numbers, CUTOFF, model.config.hidden_size)
        views[0].append(read(hidden(model, row, places.tolist())))
        views[1].append(read(erased(model, row, features)))
    return views


@pytest.fixture
def make(make_bare):
    return partial(make_bare, "consert", cutoff=CUTOFF)


def slow_nt_xent(first, second):
    views, total = [*first, *second], 0.0
    for i, own in enumerate(views):
        other = (i + len(first)) % len(views)
        below = sum(power(TEMPERATURE, own, view) for k, view in enumerate(views) if k != i)
        total = total - torch.log(power(TEMPERATURE, own, views[other]) / below)
    return total / len(views)


@with_encoders("readout attention", *CASES)
def test_loss_and_gradients_equal_a_sentence_at_a_time(
    make, exact_model, ids, ends, readout, attention
):
    method = make(readout=readout, attention=attention)
    read = (lambda states: states[0]) if readout == "cls" else (lambda states: states.mean(dim=0))
    views = slow_views(exact_model, ends, ids, 0, read)
    expected = slow_nt_xent(*views)
    assert_same_step(method(Batch(ids)), expected, (method.encoder, exact_model))
    same = slow_nt_xent(views[0], views[0])
    assert abs(same.item() - expected.item()) > 1e-3, "premise: the views differ"


def test_the_encoder_is_as_before_after_a_step(make, ids):
    """The erasing is gone: later rows, a dev check's for example, keep all features."""
    method = make()
    before = method.sentence_encoder.encode(["a b c"])
    method(Batch(ids))
    assert not method.encoder.embeddings._forward_hooks
    np.testing.assert_array_equal(method.sentence_encoder.encode(["a b c"]), before)


def test_a_row_s_own_tokens_change_places_and_padding_stays():
    rows = Ragged.from_lists([[7], [5, 6, 7, 8], [9, 9]])
    seen = set()
    for step in range(300):
        positions = shuffled_positions(TokenNumbers(rows, 0, step), rows.lengths)
        assert [sorted(row) for row in positions.tolist()] == [[0, 1, 2, 3]] * 3
        for row, n in zip(positions, rows.lengths, strict=True):
            assert sorted(row[:n]) == list(range(n))
            assert row[n:].tolist() == list(range(n, 4))
        seen.add(tuple(positions[1].tolist()))
    assert len(seen) == 24, "every order occurs"


def test_the_share_of_features_is_erased_each_as_often():
    rows = Ragged.from_lists([[n] for n in range(3000)])
    erased = kept_features(TokenNumbers(rows, 0, 0), 0.25, 10) == 0
    assert (erased.sum(axis=1) == 2).all(), "rounded down"
    np.testing.assert_allclose(erased.mean(axis=0), 0.2, atol=0.03)
    assert kept_features(TokenNumbers(rows, 0, 0), 0.0, 10).all()
