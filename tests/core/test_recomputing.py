"""Large batches in little memory: the loss and gradient of the whole batch, dropout included."""

from __future__ import annotations

import pytest
import torch

from cotbert_core.encoder import forward
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.errors import UserError
from cotbert_core.methods import build_method
from cotbert_core.methods import denosent as denosent_module
from cotbert_core.settings import TrainSettings, build
from cotbert_core.training.batches import Batch

PLAIN = {"templates.positive": None, "templates.negative": None}
KINDS = {
    "cot-bert": {},
    "cot-bert frozen bias": {"method.freeze_bias": True},
    "promptbert": {"method.name": "promptbert", "templates.negative": None},
    "simcse": {"method.name": "simcse", "templates.anchor": None, **PLAIN},
}


@pytest.fixture
def batch(encoder_folder, sentences):
    return Batch(load_backbone(encoder_folder).tokenizer(sentences, 8))


def gradient(settings, batch):
    """Loss, and every weight's gradient, of one step with the same seed."""
    torch.manual_seed(1)
    method = build_method(load_backbone(settings.encoder, dropout=settings.dropout), settings)
    method.train()
    torch.manual_seed(2)
    loss = method(batch).loss
    loss.backward()
    found = {n: p.grad for n, p in method.named_parameters() if p.grad is not None}
    return loss.detach(), found


def largest_difference(left, right):
    assert left.keys() == right.keys()
    return max(float((left[name] - right[name]).abs().max()) for name in left)


@pytest.fixture
def settings_of(tiny_settings, denosent_settings, encoder_folder):
    def make(kind, **changes):
        if kind == "denosent":
            return denosent_settings(encoder_folder, changes)
        return tiny_settings(encoder_folder, KINDS[kind] | changes)

    return make


@pytest.mark.parametrize("kind", [*KINDS, "denosent"])
def test_chunks_have_the_loss_and_gradient_of_the_whole_batch(settings_of, batch, kind):
    # DenoSent's noise on what the decoder reads is drawn chunk by chunk.
    still = {"method.dropout": 0.0, "method.decoder_dropout": 0.0} if kind == "denosent" else {}
    whole_loss, whole = gradient(settings_of(kind, dropout=0.0, **still), batch)
    for mini_batch_size in (1, 4):
        loss, found = gradient(
            settings_of(kind, dropout=0.0, mini_batch_size=mini_batch_size, **still), batch
        )
        assert float(loss) == pytest.approx(float(whole_loss), rel=1e-6)
        assert largest_difference(found, whole) < 1e-5
    assert max(float(g.abs().max()) for g in whole.values()) > 1e-3, "premise"


@pytest.mark.parametrize("kind", ["cot-bert", "denosent"])
def test_the_backward_pass_has_the_dropout_of_the_forward_pass(
    settings_of, batch, kind, monkeypatch
):
    settings = settings_of(kind, dropout=0.3, mini_batch_size=4)
    loss, found = gradient(settings, batch)
    for module in (forward, denosent_module):
        monkeypatch.setattr(module, "recomputed", lambda call, *inputs, device: call(*inputs))
    kept_loss, kept = gradient(settings, batch)
    assert loss == kept_loss
    assert largest_difference(found, kept) == 0
    other_loss, _ = gradient(settings_of(kind, dropout=0.0, mini_batch_size=4), batch)
    assert other_loss != loss, "premise: there was dropout"


def test_each_chunk_is_encoded_once_more(settings_of, batch, monkeypatch):
    """Of 3 templates and 6 sentences, and the biases of their lengths, in chunks of 4."""
    widths = []
    run = forward._last_hidden
    monkeypatch.setattr(
        forward,
        "_last_hidden",
        lambda model, given, words: widths.append(len(given.lengths)) or run(model, given, words),
    )
    gradient(settings_of("cot-bert", dropout=0.0), batch)
    rows = sum(widths)
    widths.clear()
    gradient(settings_of("cot-bert", dropout=0.0, mini_batch_size=4), batch)
    assert sum(widths) == 2 * rows
    assert max(widths) == 4


def test_a_method_that_cannot_is_refused():
    templates = {"anchor": None, "positive": None, "negative": None}
    with pytest.raises(UserError, match="mini_batch_size is 8: method tsdae keeps all activations"):
        build(
            TrainSettings,
            {"method": {"name": "tsdae"}, "templates": templates, "mini_batch_size": 8},
        )
