"""Tokens, padding and model FLOPs of a step, against torch's own count and against slow ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.method_table import BARE
from cotbert_core.encoder import forward as forward_module
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.encoder.forward import encode_rows
from cotbert_core.methods import build_method, contrastive
from cotbert_core.methods.frozen_encoders import similarities
from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.settings import TrainSettings, override
from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.templates.wrapping import BoundTemplate
from cotbert_core.training import flops
from cotbert_core.training.batches import Batch
from cotbert_core.training.flops import encoder_flops, measured_peak_flops, transformer_flops

CPU = torch.device("cpu")


def counted(run):
    """FLOPs that torch counts while `run` runs."""
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


@pytest.fixture
def encoder(bert_folder):
    return load_backbone(bert_folder, dropout=0.0)


def rows_of(encoder, lengths):
    bare = BoundTemplate.bind(None, encoder.tokenizer.hf)
    texts = [np.full(n - bare.length, 7, np.int32) for n in lengths]
    return bare.wrap(Ragged.from_lists(texts))


def pooler_flops(encoder, rows):
    return 2 * rows * encoder.hidden_size**2


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("backward", [False, True])
def test_flops_are_those_that_torch_counts(encoder, backward, frozen):
    """Exactly, but for the pooler, which runs and is read by nobody."""
    rows = rows_of(encoder, [11] * 3)
    for name, weight in encoder.model.named_parameters():
        weight.requires_grad_(not frozen or "embeddings" in name)

    def run():
        vectors = encode_rows(encoder, rows, "mean")
        if backward:
            vectors.sum().backward()

    found = encoder_flops(encoder.model, rows.lengths.numpy(), backward=backward)
    assert found == counted(run) - pooler_flops(encoder, 3)


def test_flops_are_those_of_each_row_alone(encoder):
    lengths = [3, 20, 7]

    def forward(lengths):
        rows = rows_of(encoder, lengths)
        found = counted(lambda: encode_rows(encoder, rows, "mean"))
        return found - pooler_flops(encoder, len(rows))

    expected = sum(forward([length]) for length in lengths)
    assert encoder_flops(encoder.model, np.array(lengths), backward=False) == expected
    assert forward(lengths) > 1.5 * expected, "premise: padding takes FLOPs"


def test_bert_base_takes_the_published_flops():
    """22.5 billion for a row of 128 tokens (TinyBERT, table 1), which are 24 D^2 n + 4 n^2 D for
    each of 12 layers, and 3 times as many with the backward pass."""
    lengths, weights = np.array([128]), 12 * 12 * 768**2
    forward = transformer_flops(lengths, 768, 12, weights, weights, backward=False)
    assert forward == 12 * (24 * 768**2 * 128 + 4 * 128**2 * 768)
    assert forward == pytest.approx(22.5e9, rel=0.02)
    assert transformer_flops(lengths, 768, 12, weights, weights, backward=True) == 3 * forward


def slow_work(monkeypatch, method, batch):
    """Tokens, padding and bias tokens as the encoder itself sees them."""
    seen = {"tokens": 0, "padding": 0}
    real = forward_module._last_hidden

    def watched(model, given, words):
        seen["tokens"] += int(given.attended.sum())
        seen["padding"] += given.inputs["input_ids"].numel() - int(given.attended.sum())
        return real(model, given, words)

    monkeypatch.setattr(forward_module, "_last_hidden", watched)
    method(batch)
    return seen


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"method.freeze_bias": True},
        {"method.denoise": "none"},
        {"mini_batch_size": 4},
        {"attention": "unpadded"},
    ],
    ids=str,
)
def test_tokens_and_padding_are_those_that_the_encoder_sees(
    bert_folder, tiny_settings, sentences, monkeypatch, changes
):
    monkeypatch.setattr(contrastive, "CPU_TRAIN_TOKENS", 128)
    settings = tiny_settings(bert_folder, {"batch_size": 6, **changes})
    backbone = load_backbone(bert_folder, dropout=0.0, attention=settings.attention)
    method = build_method(backbone, settings).train()
    ids = method.backbone.tokenizer(sentences, 8)
    seen = slow_work(monkeypatch, method, Batch(ids))
    assert (method.work.tokens, method.work.padding) == (seen["tokens"], seen["padding"])
    assert method.work.padding_share == seen["padding"] / sum(seen.values()) < 0.5
    assert (method.work.padding > 0) == (settings.attention != "unpadded")
    wrapped = sum(int(t.wrap(ids).lengths.sum()) for t in method.templates)
    assert method.work.tokens >= wrapped
    assert (method.work.tokens > wrapped) == (changes.get("method.denoise") != "none")
    once = method.work
    method(Batch(ids))
    assert method.work == once + once


def test_frozen_biases_have_no_backward_pass(bert_folder, tiny_settings, sentences):
    def flops(changes):
        settings = tiny_settings(bert_folder, {"batch_size": 6, **changes})
        method = build_method(load_backbone(bert_folder, dropout=0.0), settings)
        method(Batch(method.backbone.tokenizer(sentences, 8)))
        return method.work.flops

    without = flops({"method.denoise": "none"})
    live, frozen = (flops({"method.freeze_bias": f}) - without for f in (False, True))
    assert live == 3 * frozen > 0


def test_the_decoders_flops_are_those_that_torch_counts(bert_folder, denosent_settings, sentences):
    """A step of the generative objective alone. Torch counts pooler and projection too, but not
    the gradient of the decoder's input, which nobody needs, nor attention's fused kernels."""
    changes = {"batch_size": 6, "method.objective": "generative", "method.decoder_dropout": 0.0}
    settings = denosent_settings(bert_folder, changes)
    method = build_method(load_backbone(bert_folder, dropout=0.0), settings).train()
    batch = Batch(Ragged.from_lists([np.full(6, 7, np.int32)] * 6))
    with sdpa_kernel(SDPBackend.MATH):
        found = counted(lambda: method(batch).loss.backward())
    size, rows = method.backbone.hidden_size, 6
    length = method.anchor.length + 6
    unneeded = 2 * rows * length * 3 * size**2
    extra = pooler_flops(method.backbone, rows) + 6 * rows * size**2
    assert method.work.flops == found + unneeded - extra


def test_the_flops_of_masked_language_modelling_are_those_that_torch_counts(bert_folder):
    changes = {"method.name": "mlm", "batch_size": 6, "precision": "fp32"}
    settings = override(TrainSettings(encoder=bert_folder), BARE | changes)
    method = build_method(load_backbone(bert_folder, dropout=0.0), settings).train()
    batch = Batch(Ragged.from_lists([np.arange(7, 17)] * 6))
    found = counted(lambda: method(batch).loss.backward())
    assert method.work.flops == found - pooler_flops(method.backbone, 6)
    assert method.work.tokens == 6 * (10 + method.bare.length)


def test_a_frozen_encoders_flops_are_those_that_torch_counts(bert_folder):
    encoder = SentenceEncoder.from_pretrained(bert_folder)
    texts = Ragged.from_lists([np.arange(7, 17)] * 6)
    found = counted(lambda: similarities(encoder, texts, "fp32"))
    similar, work = similarities(encoder, texts, "fp32")
    compared = 2 * 6 * 6 * encoder.dimension
    assert work.flops == found - pooler_flops(encoder.backbone, 6) - compared
    assert work.tokens == 6 * (10 + encoder.bound.length)
    assert not similar.requires_grad


def test_the_matrix_rate_is_a_rate_and_draws_no_random_numbers(monkeypatch):
    monkeypatch.setattr(flops, "CPU_PRODUCT", 64)
    before = torch.get_rng_state()
    assert measured_peak_flops("fp32", CPU) > 1e6
    assert torch.equal(torch.get_rng_state(), before)
    seconds, now = iter([1.0, 4.0, 2.0, 3.0]), iter([10.0, 10.1, 10.2, 10.3])
    monkeypatch.setattr(flops, "_product_seconds", lambda _: next(seconds))
    monkeypatch.setattr(flops.time, "perf_counter", lambda: next(now))
    assert measured_peak_flops("fp32", CPU) == 2 * 64**3 / 2.0, "the best, the first left out"
