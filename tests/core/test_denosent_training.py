"""DenoSent in training: its noise, several workers, gradients, what is kept and what is learnt."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.methods import METHODS, build_method, contrastive, denosent
from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.training.batches import Batch
from cotbert_core.training.step import make_optimizer, train_step
from tests.core.slow_reference import gradients

QUIET = {"method.dropout": 0.0, "method.decoder_dropout": 0.0}


def build(settings):
    torch.manual_seed(1)
    method = build_method(load_backbone(settings.encoder, dropout=settings.dropout), settings)
    new = [p for n, p in method.named_parameters() if n.startswith(("projection", "decoder"))]
    with torch.no_grad():
        for weight in new:
            weight.add_(0.3 * torch.randn_like(weight))
    return method.train()


@pytest.fixture
def make(encoder_folder, denosent_settings):
    return lambda changes: build(denosent_settings(encoder_folder, changes))


@pytest.fixture
def batch(encoder_folder, sentences):
    ids = load_backbone(encoder_folder).tokenizer(sentences, 8)
    return Batch(ids, ids.take([2, 3, 4, 5, 0, 1]))


def read_by_decoder(method, batch):
    """The attended noisy embeddings (T, D) that the decoder is given."""
    seen = []
    hook = method.decoder.register_forward_pre_hook(lambda _, given: seen.append(given))
    method(batch)
    hook.remove()
    (noisy, attended, _) = seen[0]
    assert len(seen) == 1
    assert not noisy.requires_grad
    return noisy[attended]


@pytest.mark.parametrize("dropout", [0.0, 0.5, 0.825])
def test_noise_zeroes_its_share_of_the_embeddings_and_scales_the_rest(make, batch, dropout):
    method = make(QUIET | {"method.dropout": dropout})
    whole = read_by_decoder(method.eval(), batch)
    draws = torch.stack([read_by_decoder(method.train(), batch) for _ in range(8)])
    assert whole.count_nonzero() == whole.numel() > 2000, "nothing is dropped in eval mode"
    zero = draws == 0
    assert zero.float().mean().item() == pytest.approx(dropout, abs=0.015)
    expected = (whole / (1 - dropout)).expand_as(draws)
    # The rate is one of 65,536, and the scale goes by it.
    torch.testing.assert_close(draws[~zero], expected[~zero], rtol=5e-5, atol=1e-5)
    if dropout:
        assert (zero[0] != zero[1]).any(), "each step samples again"
        assert 0 < zero[0].float().mean(dim=1).min() < 1, "elements are dropped, not tokens"


def test_what_the_decoder_reads_is_the_encoders_input_embedding(make, batch, exact_model):
    """Longest row first, as it runs."""
    method = make(QUIET)
    found = read_by_decoder(method, batch)
    rows = [[*method.anchor.before, *t.tolist(), *method.anchor.after] for t in batch.augmented]
    rows.sort(key=len, reverse=True)
    with torch.no_grad():
        slow = [exact_model.embeddings(input_ids=torch.tensor([row]))[0] for row in rows]
    torch.testing.assert_close(found.double(), torch.cat(slow), atol=1e-5, rtol=0)


def test_ranks_of_two_together_have_the_loss_of_one(make, batch, monkeypatch):
    method = make(QUIET)
    whole = method(batch)
    halves = [batch.take(np.arange(3)), batch.take(np.arange(3, 6))]
    columns, tokens = [], []
    monkeypatch.setattr(contrastive, "gather_with_gradient", lambda v: columns.append(v) or v)
    monkeypatch.setattr(denosent, "gather_values", lambda v: tokens.append(v) or [v])
    alone = [method(half).parts for half in halves]
    assert tokens[0] != tokens[1], "premise: a plain mean of means is another number"
    monkeypatch.setattr(contrastive, "gather_with_gradient", lambda _: torch.cat(columns))
    monkeypatch.setattr(denosent, "gather_values", lambda _: tokens)
    monkeypatch.setattr(denosent, "world_size", lambda: 2)
    outputs = []
    for own in (0, 1):
        monkeypatch.setattr(contrastive, "rank", lambda own=own: own)
        outputs.append(method(halves[own]))
    assert sum(o.loss.item() for o in outputs) / 2 == pytest.approx(whole.loss.item(), rel=1e-5)
    for name in ("contrastive", "generative"):
        expected = whole.parts[name].item()
        assert sum(o.parts[name].item() for o in outputs) / 2 == pytest.approx(expected, rel=1e-5)
        plain = sum(parts[name].item() for parts in alone) / 2
        assert abs(plain - expected) > 1e-4, f"premise: {name} needs the other rank"


@pytest.mark.parametrize(
    ("objective", "projected", "readout"),
    [
        ("both", True, "mask"),
        ("both", False, "mean"),
        ("contrastive", True, "mean"),
        ("contrastive", False, "mask"),
        ("generative", True, "mask"),
    ],
)
def test_every_weight_but_the_pooler_gets_gradient(make, batch, objective, projected, readout):
    """DDP waits forever for a weight without a gradient."""
    changes = {
        "method.objective": objective,
        "method.projected": projected,
        "method.readout": readout,
        "templates.anchor": "denosent" if readout == "mask" else None,
    }
    method = make(QUIET | changes)
    method(batch).loss.backward()
    without = {n for n, p in method.named_parameters() if p.grad is None}
    assert without == {"encoder.pooler.dense.weight", "encoder.pooler.dense.bias"}
    # By algebra: a key's bias shifts all scores of a softmax equally.
    sizes = {n: g.abs().max().item() for n, g in gradients(method).items()}
    idle = {n for n, size in sizes.items() if size < 1e-6}
    assert all(name.endswith("key.bias") for name in idle), idle
    parts = {name.split(".")[0] for name in sizes}
    new = {"decoder", "vocabulary", "projection"} if objective != "contrastive" else set()
    assert parts == {"encoder"} | new | ({"projection"} if projected else set())


def test_a_saved_folder_has_the_encoder_alone(make, batch, sentences, tmp_path):
    settings = make(QUIET).settings
    method = make({})
    assert METHODS["denosent"] is type(method)
    before = {n: p.clone() for n, p in method.encoder.named_parameters()}
    train_step(method, batch, make_optimizer(method, settings.optimizer), settings, 1, 2)
    assert any(not torch.equal(p, before[n]) for n, p in method.encoder.named_parameters())
    encoder = SentenceEncoder(method.finished, method.pooling, method.kept_head)
    vectors = encoder.encode(sentences, precision="fp32")
    encoder.save_pretrained(tmp_path / "model")
    kept = set(load_file(tmp_path / "model" / "model.safetensors"))
    assert kept == set(dict(method.encoder.named_parameters()))
    assert not (tmp_path / "model" / "head.safetensors").exists()
    opened = SentenceEncoder.from_pretrained(tmp_path / "model")
    np.testing.assert_array_equal(opened.encode(sentences, precision="fp32"), vectors)
    assert opened.pooling.template == method.template("anchor")


def test_the_default_sixteen_layers_learn_to_rebuild(bert_folder, denosent_settings, sentences):
    """Noise and dropout as released, on a handful of sentences."""
    changes = {
        "method.layers": 16,
        "method.heads": 1,
        "method.feed_forward": 64,
        "method.objective": "generative",
        "optimizer.learning_rate": 3e-3,
        "optimizer.schedule": "constant",
    }
    settings = denosent_settings(bert_folder, changes)
    assert (settings.method.dropout, settings.method.decoder_dropout) == (0.825, 0.1)
    torch.manual_seed(0)
    method = build_method(load_backbone(bert_folder, dropout=0.0), settings).train()
    assert len(method.decoder.layers) == 16
    batch = Batch(method.backbone.tokenizer(sentences, 8))
    optimizer = make_optimizer(method, settings.optimizer)
    losses = [
        train_step(method, batch, optimizer, settings, step, 20).parts["generative"]
        for step in range(1, 21)
    ]
    assert np.isfinite(losses).all()
    assert np.mean(losses[-5:]) < 0.85 * np.mean(losses[:3]), losses


def test_the_generative_loss_falls_on_real_sentences(shared, denosent_settings):
    """all-MiniLM-L6-v2 and the decoder as released, on Wikipedia."""
    changes = {
        "method.layers": 16,
        "method.heads": 1,
        "method.feed_forward": 2048,
        "max_length": 16,
        "precision": "auto",
        "optimizer.learning_rate": 1e-4,
        "optimizer.schedule": "constant",
    }
    settings = denosent_settings("all-MiniLM-L6-v2", changes)
    lines = (shared / "data" / "corpus" / "wiki1m_prefix.txt").read_text(encoding="utf-8")
    torch.manual_seed(0)
    method = build_method(load_backbone(settings.encoder), settings).train()
    batch = Batch(method.backbone.tokenizer(lines.splitlines()[:8], settings.max_length))
    optimizer = make_optimizer(method, settings.optimizer)
    losses = [
        train_step(method, batch, optimizer, settings, step, 4).parts["generative"]
        for step in range(1, 5)
    ]
    assert losses[0] > 9, "premise: it begins near log(30,522) = 10.3"
    assert min(losses[2:]) < losses[0] - 1, losses
