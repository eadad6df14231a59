"""Packed rows against padded ones: the same vectors, losses and gradients, with dropout too."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from made_encoders import with_encoders
from transformers import DistilBertConfig, DistilBertModel

from cotbert_core import SentenceEncoder, UserError
from cotbert_core.encoder import forward
from cotbert_core.encoder.attention import initial_attention, plain_attention, unpadded_attention
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.methods import build_method
from cotbert_core.templates.wrapping import BoundTemplate
from cotbert_core.training.batches import Batch
from tests.core.slow_reference import gradients


def encode(folder, texts, attention, template=None, readout=None, precision="fp32"):
    encoder = SentenceEncoder.from_pretrained(folder, template, readout, attention=attention)
    return encoder.encode(texts, precision=precision)


@pytest.mark.parametrize("readout", ["mask", "mean", "cls"])
def test_packed_rows_have_the_vectors_of_padded_ones(
    encoder_folder, family, sentences, readout, monkeypatch
):
    batches, run = [], forward._last_hidden

    def record(model, batch, words):
        batches.append(batch)
        return run(model, batch, words)

    monkeypatch.setattr(forward, "_last_hidden", record)
    how = (f"{family}/anchor" if readout == "mask" else None, readout)
    packed = encode(encoder_folder, sentences, "unpadded", *how)
    (batch,) = batches
    assert batch.inputs["input_ids"].shape == (1, int(batch.lengths.sum()))
    assert batch.inputs["input_ids"].numel() < batch.attended.numel(), "premise: unequal rows"
    np.testing.assert_allclose(packed, encode(encoder_folder, sentences, "eager", *how), atol=2e-6)
    others = [*sentences[1:], "Nobody gave her an answer"]
    other = encode(encoder_folder, others, "unpadded", *how)
    np.testing.assert_allclose(other[:-1], packed[1:], atol=2e-6)
    assert np.abs(other[-1] - packed[0]).max() > 1e-2


def test_an_encoder_is_packed_if_its_family_supports_it(encoder_folder, sentences, tmp_path):
    """A budget of half the tokens gives two batches without padding, run in threads."""
    encoder = SentenceEncoder.from_pretrained(encoder_folder)
    expected = encoder.encode(sentences, precision="fp32")
    encoder.backbone = encoder.backbone.packed()
    assert encoder.backbone.packs
    for budget in (10**6, 20, 1):
        found = encoder.encode(sentences, budget, precision="fp32")
        np.testing.assert_allclose(found, expected, atol=2e-6)
    alone = encoder.encode(sentences[:1], precision="fp32")
    np.testing.assert_allclose(alone, expected[:1], atol=2e-6)
    eager = load_backbone(encoder_folder, attention="eager")
    assert eager.packed() is eager


@with_encoders(
    "attention denoise mini_batch_size",
    ("bert", "unpadded", "pad", 4),
    ("roberta", "unpadded", "position", None),
    ("roberta", "plain", "pad", None),
)
def test_a_step_on_packed_rows_has_the_same_loss_and_gradient(
    encoder_folder, tiny_settings, ids, attention, denoise, mini_batch_size
):
    """As one with transformers' own attention; on padded rows by `plain` too."""
    changes = {"method.denoise": denoise, "mini_batch_size": mini_batch_size}
    found = []
    for kind in ("eager", attention):
        settings = tiny_settings(encoder_folder, {"attention": kind, **changes})
        torch.manual_seed(1)
        backbone = load_backbone(settings.encoder, dropout=settings.dropout, attention=kind)
        method = build_method(backbone, settings).train()
        torch.manual_seed(2)
        loss = method(Batch(ids)).loss
        loss.backward()
        found.append((loss.detach(), gradients(method)))
    (loss, padded), (own_loss, own) = found
    assert float(own_loss) == pytest.approx(float(loss), abs=1e-6)
    assert own.keys() == padded.keys()
    for name, gradient in padded.items():
        torch.testing.assert_close(own[name], gradient, rtol=1e-4, atol=2e-5)


def test_attention_drops_out_of_packed_rows_as_of_padded_ones():
    """The mean over many draws is the value without dropout; each draw is another."""
    torch.manual_seed(0)
    offsets = torch.tensor([0, 3, 8])
    query, key, value = torch.randn(3, 1, 2, 8, 4)

    def attend(dropout):
        mixed, _ = unpadded_attention(
            torch.nn.Identity(), query, key, value, None,
            scaling=0.5, dropout=dropout, offsets=offsets, longest=5,
        )  # fmt: skip
        return mixed

    still = attend(0.0)
    slow = []
    for rows in (slice(0, 3), slice(3, 8)):
        weights = torch.softmax(query[0, :, rows] @ key[0, :, rows].transpose(1, 2) * 0.5, dim=-1)
        slow.append((weights @ value[0, :, rows]).transpose(0, 1))
    torch.testing.assert_close(still[0], torch.cat(slow))
    draws = torch.stack([attend(0.3) for _ in range(150)])
    assert not torch.equal(draws[0], draws[1])
    torch.testing.assert_close(draws.mean(0), still, rtol=0, atol=0.25)


def test_without_offsets_rows_are_padded_ones(encoder_folder, sentences):
    """What reads hidden layers or attention itself gives padded rows and a mask."""
    backbones = [load_backbone(encoder_folder, attention=a) for a in ("sdpa", "unpadded")]
    ids = backbones[0].tokenizer(sentences, 8)
    rows = BoundTemplate.bind(None, backbones[0].tokenizer.hf).wrap(ids)
    mask = torch.arange(rows.ids.shape[1]) < rows.lengths[:, None]
    with torch.no_grad():
        padded, packed = (
            b.model(input_ids=rows.ids, attention_mask=mask.long()).last_hidden_state[mask]
            for b in backbones
        )
    torch.testing.assert_close(packed, padded)


def test_the_default_suits_device_and_family(bert_folder, tmp_path):
    assert load_backbone(bert_folder).attention == "plain"
    assert initial_attention("auto", torch.device("cuda")) is None, "transformers chooses"
    tokenizer = load_backbone(bert_folder).tokenizer.hf
    config = DistilBertConfig(vocab_size=len(tokenizer), dim=8, n_layers=1, n_heads=2, hidden_dim=8)
    DistilBertModel(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert load_backbone(str(tmp_path)).attention == "eager"
    with pytest.raises(
        UserError, match="of the family 'distilbert': only the families bert, roberta, xlm-roberta"
    ):
        load_backbone(str(tmp_path), attention="unpadded")


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_plain_attention_is_that_of_transformers(encoder_folder, family, sentences, precision):
    """And in bf16 no further from the fp32 vectors than transformers' own."""
    how = (f"{family}/anchor", "mask")
    exact = encode(encoder_folder, sentences, "eager", *how)
    far, theirs = (
        np.abs(encode(encoder_folder, sentences, a, *how, precision) - exact).max()
        for a in ("plain", "eager")
    )
    assert far <= (2e-6 if precision == "fp32" else 1.5 * theirs)


@pytest.mark.parametrize("width", [3, 16, 27, 32, 33, 47, 64, 100])
def test_weights_are_those_of_the_scores_in_fp32_up_to_the_rounding_of_bf16(width):
    query, key, value = torch.randn(3, 5, 2, width, 8, generator=torch.Generator().manual_seed(1))
    mask = torch.zeros(5, 1, 1, width).masked_fill_(torch.arange(width) >= width - 1, -torch.inf)
    given = [part.bfloat16() for part in (query, key, value)]
    weights = plain_attention(None, *given, mask, scaling=0.5)[1]
    assert weights.dtype == torch.bfloat16
    scores = (given[0] * 0.5) @ given[1].transpose(2, 3) + mask.bfloat16()
    expected = torch.softmax(scores.double(), dim=-1)
    torch.testing.assert_close(weights.double(), expected, rtol=2**-8, atol=2**-9)
    assert not weights[..., -1].any()
