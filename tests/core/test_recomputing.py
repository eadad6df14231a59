"""Every method in little memory: chunks have the loss and gradient of the whole batch, dropout
included, and bf16 about the loss of fp32."""

from __future__ import annotations

import pytest
import torch

from cotbert_core.encoder import forward
from cotbert_core.methods import denosent as denosent_module
from cotbert_core.training.precision import autocast
from tests.core.method_table import METHODS, PLAIN
from tests.core.slow_reference import gradients

WITH_CHUNKS = [name for name in METHODS if name not in PLAIN]


def gradient(method, settings, batch):
    """Loss, and every weight's gradient, of one step."""
    loss = method(batch).loss
    loss.backward()
    return loss.detach(), gradients(method)


def largest_difference(left, right):
    assert left.keys() == right.keys()
    return max(float((left[name] - right[name]).abs().max()) for name in left)


@pytest.mark.parametrize("name", WITH_CHUNKS)
def test_chunks_have_the_loss_and_gradient_of_the_whole_batch(start, name):
    whole_loss, whole = gradient(*start(name))
    # Packed rows where a method takes them: these too have the gradient of padded ones.
    attention = "auto" if name in ("promcse", "cot-bert") else "unpadded"
    loss, found = gradient(*start(name, mini_batch_size=4, attention=attention))
    assert float(loss) == pytest.approx(float(whole_loss), rel=1e-5)
    assert largest_difference(found, whole) < 1e-5
    assert max(float(g.abs().max()) for g in whole.values()) > 1e-3, "premise"


@pytest.mark.parametrize("name", ["cot-bert", "denosent"])
def test_the_backward_pass_has_the_dropout_of_the_forward_pass(start, name, monkeypatch):
    loss, found = gradient(*start(name, 0.3, mini_batch_size=4))
    for module in (forward, denosent_module):
        monkeypatch.setattr(module, "recomputed", lambda call, *inputs, device: call(*inputs))
    kept_loss, kept = gradient(*start(name, 0.3, mini_batch_size=4))
    assert loss == kept_loss
    assert largest_difference(found, kept) == 0
    other_loss, _ = gradient(*start(name, mini_batch_size=4))
    assert other_loss != loss, "premise: there was dropout"


def test_each_chunk_is_encoded_once_more(start, monkeypatch):
    """Of 3 templates and 6 sentences, and the biases of their lengths, in chunks of 4."""
    widths = []
    run = forward._last_hidden
    monkeypatch.setattr(
        forward,
        "_last_hidden",
        lambda model, given, words: widths.append(len(given.lengths)) or run(model, given, words),
    )
    gradient(*start("cot-bert"))
    rows = sum(widths)
    widths.clear()
    gradient(*start("cot-bert", mini_batch_size=4))
    assert sum(widths) == 2 * rows
    assert max(widths) == 4


@pytest.mark.parametrize("name", METHODS)
def test_bf16_has_about_the_same_loss_in_fp32(start, name):
    method, _, batch = start(name, **({"method.deletion": 0.0} if name == "tsdae" else {}))
    expected = method(batch).loss.item()
    with autocast("bf16", torch.device("cpu")):
        loss = method(batch).loss
    loss.backward()
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(expected, rel=0.02, abs=0.02)
    assert loss.item() != expected, "premise: bf16 rounds"
