"""DCLR: noise as negatives, false negatives left out, against a sentence and a pair at a time."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from made_encoders import with_encoders
from torch.nn.functional import cosine_similarity

from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.methods.dclr import false_negatives, gaussian, moved_noise
from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.training.batches import Batch
from tests.core.slow_reference import (
    assert_same_step,
    exact,
    plain_vectors,
    power,
    tanh_vectors,
)

TEMPERATURE, STEP, STEPS, STEP_SIZE = 0.5, 3, 3, 2.0
# What all ways of attention have in common is tested in test_attention.
CASES = [("bert", "cls", "auto"), ("roberta", "mean", "unpadded")]


@pytest.fixture
def complement(other_encoder, encoder_folder):
    return other_encoder(encoder_folder, 1)


@pytest.fixture
def similar(complement, ids, ends):
    """The complement's cosines (6, 6), of vectors of a sentence at a time."""
    with torch.no_grad():
        vectors = plain_vectors(exact(load_backbone(complement).model), ends, ids, "mean")
    return np.array([[cosine_similarity(u, v, dim=0).item() for v in vectors] for u in vectors])


@pytest.fixture
def threshold(similar):
    """Between the middle two of the fifteen pairs' cosines."""
    pairs = np.sort(similar[np.triu_indices(6, 1)])
    return float(pairs[6:8].mean())


@pytest.fixture
def make(make_bare, complement, threshold):
    noise = {"noise": 1.5, "noise_steps": STEPS, "noise_step_size": STEP_SIZE}
    given = {"batch_size": 6, "complement": complement, "threshold": threshold}
    return partial(make_bare, "dclr", temperature=TEMPERATURE, **noise, **given)


def a(u, v):
    return power(TEMPERATURE, u, v)


def slow_moved(noise, anchors, steps, step_size):
    """A vector at a time, by torch's own gradient of the objective."""
    noise = [v.detach().clone().requires_grad_() for v in noise]
    for _ in range(steps):
        total = sum(torch.log(sum(a(u, v) for v in noise)) for u in anchors) / len(anchors)
        gradients = torch.autograd.grad(total, noise)
        noise = [
            (v + step_size * g / g.norm()).detach().requires_grad_()
            for v, g in zip(noise, gradients, strict=True)
        ]
    return [v.detach() for v in noise]


def slow_loss(anchors, noise, negatives):
    """negatives: whether sentence j is a negative of i."""
    total = 0.0
    for i, own in enumerate(anchors):
        below = sum(a(own, other) for j, other in enumerate(anchors) if j == i or negatives[i][j])
        total = total - torch.log(a(own, own) / (below + sum(a(own, v) for v in noise)))
    return total / len(anchors)


@with_encoders("readout attention", *CASES)
def test_loss_and_gradients_equal_a_sentence_at_a_time(
    make, exact_model, ids, ends, similar, threshold, readout, attention
):
    """Without dropout the views of a sentence are equal."""
    method = make(readout=readout, attention=attention)
    head = exact(method.head)
    vectors = tanh_vectors(exact_model, head, ends, ids, readout)
    fixed = [v.detach() for v in vectors]
    drawn = [torch.from_numpy(v).double() for v in gaussian(9, 32, 0, STEP)]
    noise = slow_moved(drawn, fixed, STEPS, STEP_SIZE)
    expected = slow_loss(vectors, noise, similar < threshold)
    output = method(Batch(ids))
    assert_same_step(output, expected, (method.encoder, exact_model), (method.head, head))
    assert output.parts["left_out"].item() == pytest.approx(16 / 36)
    others = (drawn, similar < threshold), (noise, similar < 2), ([], similar < threshold)
    for wrong in others:
        assert abs(slow_loss(fixed, *wrong).item() - expected.item()) > 1e-2, "premise"


def test_noise_without_a_gradient_stays():
    """On the only anchor and opposite to it."""
    anchor = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    noise = torch.tensor([[2.0, 0.0], [-3.0, 0.0]], dtype=torch.float64)
    found = moved_noise(noise, anchor, temperature=0.5, steps=4, step_size=0.1)
    torch.testing.assert_close(found, noise)


def test_noise_depends_on_seed_and_step_alone():
    noise = gaussian(2000, 16, 1, 2)
    np.testing.assert_array_equal(gaussian(2000, 16, 1, 2), noise)
    assert noise.dtype == np.float32
    assert abs(noise.mean()) < 0.02
    assert noise.std() == pytest.approx(1, abs=0.02)
    for seed, step in ((1, 3), (2, 2)):
        assert not np.array_equal(gaussian(2000, 16, seed, step), noise)


def test_a_positive_is_never_a_false_negative():
    similar = torch.tensor([[1.0, 0.9, 0.2, 0.8], [0.9, 1.0, 0.8, 0.1]])
    assert false_negatives(similar, 0.8).tolist() == [
        [False, True, False, True],
        [True, False, True, False],
    ]
    assert false_negatives(similar, 0.8, first=2).tolist() == [
        [True, True, False, True],
        [True, True, True, False],
    ]


def test_a_threshold_that_leaves_all_out_leaves_the_noise(make, ids):
    output = make(threshold=-1.0)(Batch(ids))
    assert output.parts["left_out"].item() == pytest.approx(30 / 36)
    assert output.loss.item() > 0.1
    alone = make(threshold=-1.0, noise=0.0)
    loss = alone(Batch(ids)).loss
    loss.backward()
    assert loss.item() == 0
    assert all(not p.grad.any() for p in alone.parameters() if p.grad is not None)


def test_equal_and_one_token_sentences(make):
    """A sentence that occurs twice is a false negative of itself."""
    method = make(threshold=0.9999)
    output = method(Batch(Ragged.from_lists([[7], [8], [7], [9], [7], [10, 11]])))
    output.loss.backward()
    assert output.parts["left_out"].item() == pytest.approx(6 / 36)
    assert all(torch.isfinite(p.grad).all() for p in method.parameters() if p.grad is not None)
