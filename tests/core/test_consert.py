"""ConSERT: its two views, and losses and gradients against a sentence and a pair at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.losses import nt_xent
from cotbert_core.methods import build_method
from cotbert_core.methods.consert import kept_features, shuffled_positions
from cotbert_core.templates.ragged_ids import Ragged, concatenate
from cotbert_core.training.batches import Batch
from cotbert_core.training.token_numbers import TokenNumbers
from tests.core.slow_reference import FIRST_POSITION, assert_same_gradients, hidden

TEMPERATURE, CUTOFF, STEP = 0.5, 0.3, 3
NONE = {f"templates.{role}": None for role in ("anchor", "positive", "negative")}
# What all ways of attention have in common is tested in test_attention.
CASES = [("cls", "auto"), ("mean", "plain"), ("cls", "unpadded"), ("mean", "unpadded")]


@pytest.fixture
def make(encoder_folder, tiny_settings):
    def build(**changes):
        flat = ("dropout", "attention", "mini_batch_size", "seed")
        changes = {k if k in flat else f"method.{k}": v for k, v in changes.items()}
        few = {"method.name": "consert", "method.cutoff": CUTOFF, **NONE}
        settings = tiny_settings(encoder_folder, {**few, **changes})
        backbone = load_backbone(encoder_folder, attention=settings.attention)
        method = build_method(backbone, settings)
        method.step = STEP
        return method

    return build


@pytest.fixture
def batch(ids):
    return Batch(ids.take([0, 1, 2, 3, 4, 5]))


def erased(model, row, features):
    """(L, D) of one row whose embeddings have lost some features."""
    start = FIRST_POSITION[model.config.model_type]
    embedded = model.embeddings(
        input_ids=torch.tensor([row]), position_ids=torch.arange(len(row))[None] + start
    )
    return model.encoder(embedded * torch.from_numpy(features)).last_hidden_state[0]


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


def slow_nt_xent(temperature, first, second):
    def a(u, v):
        return torch.exp(u @ v / (u.norm() * v.norm()) / temperature)

    views, total = [*first, *second], 0.0
    for i, own in enumerate(views):
        other = (i + len(first)) % len(views)
        below = sum(a(own, view) for k, view in enumerate(views) if k != i)
        total = total - torch.log(a(own, views[other]) / below)
    return total / len(views)


@pytest.mark.parametrize(("readout", "attention"), CASES)
def test_loss_and_gradients_equal_a_sentence_at_a_time(
    make, exact_model, batch, ends, readout, attention
):
    method = make(readout=readout, attention=attention)
    loss = method(batch).loss
    loss.backward()
    read = (lambda states: states[0]) if readout == "cls" else (lambda states: states.mean(dim=0))
    views = slow_views(exact_model, ends, batch.sentences, 0, read)
    expected = slow_nt_xent(TEMPERATURE, *views)
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), abs=1e-5)
    assert_same_gradients(method.encoder, exact_model)
    same = slow_nt_xent(TEMPERATURE, views[0], views[0])
    assert abs(same.item() - expected.item()) > 1e-3, "premise: the views differ"


@pytest.mark.parametrize("changes", [{"shuffle": False}, {"cutoff": 0.0}, {"cutoff": 0.6}])
def test_every_setting_matters(make, batch, changes):
    losses = [make(**given)(batch).loss.item() for given in ({}, changes)]
    assert abs(losses[0] - losses[1]) > 1e-4


def test_the_encoder_is_as_before_after_a_step(make, batch):
    """The erasing is gone: later rows, a dev check's for example, keep all features."""
    method = make()
    before = method.sentence_encoder.encode(["a b c"])
    method(batch)
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
    rows, size = Ragged.from_lists([[7], [5, 6, 7]]), 10
    times = np.zeros((2, size))
    for step in range(3000):
        kept = kept_features(TokenNumbers(rows, 0, step), 0.25, size)
        assert (kept == 0).sum(axis=1).tolist() == [2, 2], "rounded down"
        times += kept == 0
    np.testing.assert_allclose(times / 3000, 0.2, atol=0.03)
    assert kept_features(TokenNumbers(rows, 0, 0), 0.0, size).all()


def test_a_row_s_numbers_do_not_depend_on_the_others():
    rows = Ragged.from_lists([[7], [5, 6, 7, 8], [9, 9, 4]])

    def numbers(some, seed=1, step=2):
        return TokenNumbers(some, seed, step).of_columns(6, 5)

    alone = [numbers(concatenate([rows.take([i])])) for i in range(3)]
    np.testing.assert_array_equal(numbers(rows), np.concatenate(alone))
    for seed, step in ((1, 3), (2, 2)):
        assert not np.array_equal(numbers(rows, seed, step), numbers(rows))


def test_a_view_is_no_negative_of_itself():
    torch.manual_seed(0)
    views = [torch.randn(3, 4, dtype=torch.float64) for _ in range(2)]
    found = nt_xent(*views, *views, temperature=TEMPERATURE).item()
    assert found == pytest.approx(slow_nt_xent(TEMPERATURE, *map(list, views)).item(), abs=1e-12)
