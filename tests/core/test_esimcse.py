"""ESimCSE: repeated tokens, and the queue against a slow one that is a list."""

from __future__ import annotations

import copy
from functools import partial

import numpy as np
import pytest
import torch
from made_encoders import with_encoders

from cotbert_core.methods.esimcse import repeat_tokens
from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.training.batches import Batch
from tests.core import slow_reference
from tests.core.slow_reference import assert_same_gradients, exact, tanh_vectors

TEMPERATURE, MOMENTUM, REPETITION, RATE = 0.5, 0.5, 0.6, 0.05


@pytest.fixture
def make(make_bare):
    return partial(make_bare, "esimcse", temperature=TEMPERATURE, batch_size=6)


def descend(*modules):
    """One step of gradient descent."""
    with torch.no_grad():
        for module in modules:
            for weight in module.parameters():
                if weight.grad is not None:
                    weight -= RATE * weight.grad
                    weight.grad = None


def run(method, batches, steps):
    """Losses of some steps. The weights move after each but the last, which leaves gradients."""
    losses = []
    method.zero_grad()
    for step in steps:
        method.step = step
        loss = method(batches[step - 1]).loss
        loss.backward()
        losses.append(loss.item())
        if step != steps[-1]:
            descend(method.encoder, method.head)
    return losses


@pytest.fixture
def batches(ids):
    return [Batch(ids.take(order)) for order in ([0, 1, 2, 3, 4, 5], [5, 3, 1, 0, 2, 4])] * 2


@with_encoders("readout", ("bert", "cls"), ("roberta", "mean"))
def test_losses_and_gradients_equal_a_sentence_at_a_time(make, exact_model, batches, ends, readout):
    """The queue holds one and a half batches, so the fourth step has dropped rows of the first."""
    method = make(readout=readout, momentum=MOMENTUM, queue=1.5, repetition=REPETITION)
    model, head, slow, queue = exact_model, exact(method.head), copy.deepcopy(exact_model), []
    expected, without = [], []
    for step, batch in enumerate(batches, 1):
        method.step = step
        repeated = repeat_tokens(batch.sentences, REPETITION, method.settings.seed, step)
        views = [tanh_vectors(model, head, ends, t, readout) for t in (batch.sentences, repeated)]
        loss = slow_reference.info_nce(TEMPERATURE, *views, queue)
        without.append(slow_reference.info_nce(TEMPERATURE, *views).item())
        loss.backward()
        expected.append(loss.item())
        with torch.no_grad():
            for late, now in zip(slow.parameters(), model.parameters(), strict=True):
                late.copy_(MOMENTUM * late + (1 - MOMENTUM) * now)
            queue = [*queue, *tanh_vectors(slow, head, ends, batch.sentences, readout)][-9:]
        if step < len(batches):
            descend(model, head)
    assert run(method, batches, range(1, 5)) == pytest.approx(expected, abs=1e-4)
    assert all(a - b > 0.1 for a, b in zip(expected[1:], without[1:], strict=True)), "premise"
    assert_same_gradients(method.encoder, model)
    assert_same_gradients(method.head, head)
    torch.testing.assert_close(method.queue.double(), torch.stack(queue), atol=1e-4, rtol=0)


def test_without_a_queue_there_is_no_second_encoder(make, batches):
    method = make(queue=0)
    names = {name.split(".")[0] for name, _ in method.named_parameters()}
    assert names == {"encoder", "head"}
    assert run(method, batches, [1]) == run(make(queue=1.5), batches, [1]), "the first step"


def test_the_queue_s_encoder_has_no_dropout_and_no_gradient(make, batches):
    method = make(dropout=0.3, queue=1.0).train()
    run(method, batches, [1])
    assert method.encoder.training
    assert not method.slow.training
    assert not any(p.requires_grad or p.grad is not None for p in method.slow.parameters())
    calm = make(queue=1.0)
    run(calm, batches, [1])
    torch.testing.assert_close(method.queue, calm.queue)


@pytest.mark.parametrize("share", [0.0, 0.32, 1.0])
def test_repetitions_are_as_many_as_the_paper_says(share):
    """Each number of them up to the largest is about as likely; a token stands at most twice."""
    lengths, times = [0, 1, 2, 5, 20], 2000
    rows = Ragged.from_lists([1000 * t + np.arange(n) for t in range(times) for n in lengths])
    repeated = repeat_tokens(rows, share, 0, 7)
    found = (repeated.lengths - rows.lengths).reshape(times, len(lengths))
    for n, counts in zip(lengths, found.T, strict=True):
        most = min(n, max(2, int(share * n)))
        frequencies = np.bincount(counts, minlength=most + 1) / len(counts)
        np.testing.assert_allclose(frequencies, 1 / (most + 1), atol=0.04)
    for before, after in zip(rows, repeated, strict=True):
        first = after[np.concatenate([[True], after[1:] != after[:-1]])] if len(after) else after
        assert first.tolist() == before.tolist(), "the order stays, a second one follows its first"
        assert len(after) == 0 or np.unique(after, return_counts=True)[1].max() <= 2


def test_every_token_is_repeated_alike():
    rows = Ragged.from_lists([6 * n + np.arange(6) for n in range(3000)])
    repeated = np.bincount(repeat_tokens(rows, 1.0, 0, 7).flat).reshape(3000, 6) - 1
    np.testing.assert_allclose(repeated.mean(axis=0), 0.5, atol=0.05)


def test_a_repeated_sentence_never_exceeds_the_encoder(make):
    method = make(repetition=1.0)
    room = method.backbone.max_tokens - 2
    rows = Ragged.from_lists([np.full(room, 7), np.full(room - 1, 9)])
    for step in range(1, 6):
        method.step = step
        assert torch.isfinite(method(Batch(rows)).loss)
    assert repeat_tokens(rows, 1.0, 0, 1).lengths.max() > room, "premise"
