"""Packed rows against padded ones: the same vectors, losses and gradients, with dropout too."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import DistilBertConfig, DistilBertModel

from cotbert_core import SentenceEncoder, UserError
from cotbert_core.encoder import forward
from cotbert_core.encoder.attention import initial_attention, unpadded_attention
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.methods import build_method
from cotbert_core.templates.wrapping import BoundTemplate
from cotbert_core.training.batches import Batch


@pytest.fixture
def given(monkeypatch):
    """What the encoder is given, batch by batch."""
    batches = []
    run = forward._last_hidden
    monkeypatch.setattr(
        forward,
        "_last_hidden",
        lambda model, batch, words: batches.append(batch) or run(model, batch, words),
    )
    return batches


@pytest.mark.parametrize("readout", ["mask", "mean", "cls"])
def test_packed_rows_have_the_vectors_of_padded_ones(
    encoder_folder, family, sentences, readout, given
):
    template = f"{family}/anchor" if readout == "mask" else None

    def encode(attention, texts=sentences):
        encoder = SentenceEncoder.from_pretrained(
            encoder_folder, template, readout, attention=attention
        )
        return encoder.encode(texts, precision="fp32")

    packed = encode("unpadded")
    (batch,) = given
    assert batch.inputs["input_ids"].shape == (1, int(batch.lengths.sum()))
    assert batch.inputs["input_ids"].numel() < batch.attended.numel(), "premise: unequal rows"
    np.testing.assert_allclose(packed, encode("eager"), atol=2e-6)
    other = encode("unpadded", [*sentences[1:], "Nobody gave her an answer"])
    np.testing.assert_allclose(other[:-1], packed[1:], atol=2e-6)
    assert np.abs(other[-1] - packed[0]).max() > 1e-2


def one_step(settings, batch):
    torch.manual_seed(1)
    backbone = load_backbone(
        settings.encoder, dropout=settings.dropout, attention=settings.attention
    )
    method = build_method(backbone, settings).train()
    torch.manual_seed(2)
    loss = method(batch).loss
    loss.backward()
    return float(loss.detach()), {
        name: weight.grad for name, weight in method.named_parameters() if weight.grad is not None
    }


@pytest.mark.parametrize(("denoise", "mini_batch_size"), [("pad", 4), ("position", None)])
def test_a_step_on_packed_rows_has_the_same_loss_and_gradient(
    encoder_folder, tiny_settings, sentences, denoise, mini_batch_size
):
    batch = Batch(load_backbone(encoder_folder).tokenizer(sentences, 8))
    found = {}
    for attention in ("eager", "unpadded"):
        changes = {
            "attention": attention,
            "method.denoise": denoise,
            "mini_batch_size": mini_batch_size,
        }
        found[attention] = one_step(tiny_settings(encoder_folder, changes), batch)
    (loss, padded), (packed_loss, packed) = found["eager"], found["unpadded"]
    assert packed_loss == pytest.approx(loss, abs=1e-6)
    assert packed.keys() == padded.keys()
    for name, gradient in padded.items():
        torch.testing.assert_close(packed[name], gradient, rtol=1e-4, atol=2e-5)


def test_attention_drops_out_of_packed_rows_as_of_padded_ones():
    """The mean over many draws is the value without dropout; each draw is another."""
    torch.manual_seed(0)
    lengths = torch.tensor([3, 5])
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
    for start, length in zip(offsets, lengths, strict=False):
        rows = slice(int(start), int(start + length))
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


def test_a_family_that_cannot_pack_is_refused(bert_folder, tmp_path):
    tokenizer = load_backbone(bert_folder).tokenizer.hf
    config = DistilBertConfig(vocab_size=len(tokenizer), dim=8, n_layers=1, n_heads=2, hidden_dim=8)
    DistilBertModel(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(
        UserError, match="of the family 'distilbert': only the families bert, roberta, xlm-roberta"
    ):
        load_backbone(str(tmp_path), attention="unpadded")
    assert load_backbone(str(tmp_path)).attention == "eager"


def test_the_default_suits_the_device(bert_folder):
    assert load_backbone(bert_folder).attention == "plain"
    assert initial_attention("auto", torch.device("cuda")) == "sdpa"


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_plain_attention_is_that_of_transformers(encoder_folder, family, sentences, precision):
    """And in bf16 no further from the fp32 vectors than transformers' own."""

    def encode(attention, precision=precision):
        encoder = SentenceEncoder.from_pretrained(
            encoder_folder, f"{family}/anchor", attention=attention
        )
        return encoder.encode(sentences, precision=precision)

    exact = encode("eager", "fp32")
    far, theirs = (np.abs(encode(a) - exact).max() for a in ("plain", "eager"))
    assert far <= (2e-6 if precision == "fp32" else 1.5 * theirs)


def test_plain_attention_has_the_gradient_of_transformers(encoder_folder, tiny_settings, sentences):
    batch = Batch(load_backbone(encoder_folder).tokenizer(sentences, 8))
    found = [
        one_step(tiny_settings(encoder_folder, {"attention": a}), batch) for a in ("eager", "plain")
    ]
    assert found[1][0] == pytest.approx(found[0][0], abs=1e-6)
    for name, gradient in found[0][1].items():
        torch.testing.assert_close(found[1][1][name], gradient, rtol=1e-4, atol=2e-5)
