"""The number format that `auto` selects, by what a CPU says of itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cotbert_core import SentenceEncoder
from cotbert_core.encoder.pooling import read_mean
from cotbert_core.training.precision import (
    autocast,
    cast_weights,
    has_fast_bf16,
    resolve_precision,
)

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("onednn", "cpu", "chosen"),
    [
        (True, {"cpu_name": "AMD EPYC", "avx512_bf16": True, "amx_bf16": False}, "bf16"),
        (True, {"cpu_name": "Intel Xeon", "avx512_bf16": True, "amx_bf16": True}, "bf16"),
        (True, {"cpu_name": "Intel Xeon", "avx512_bf16": True, "amx_bf16": False}, "fp32"),
        (True, {"architecture": "aarch64", "bf16": True}, "bf16"),
        (False, {"cpu_name": "AMD EPYC", "avx2": True}, "fp32"),
    ],
)
def test_auto_is_bf16_only_where_it_is_faster(monkeypatch, onednn, cpu, chosen):
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: onednn)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: cpu)
    assert has_fast_bf16(CPU) == (chosen == "bf16")
    assert resolve_precision("auto", CPU) == chosen
    with autocast("auto", CPU):
        product = torch.nn.functional.linear(torch.ones(2, 2), torch.ones(2, 2))
    assert product.dtype == {"bf16": torch.bfloat16, "fp32": torch.float32}[chosen]


@pytest.mark.parametrize("attention", ["plain", "unpadded"])
def test_weights_that_are_cast_once_give_the_same_vectors(encoder_folder, sentences, attention):
    encoder = SentenceEncoder.from_pretrained(encoder_folder, attention=attention)
    before = [encoder.encode(sentences, precision=one) for one in ("bf16", "fp32")]
    cast_weights(encoder.backbone.model, "fp32")
    assert np.array_equal(encoder.encode(sentences, precision="fp32"), before[1])
    cast_weights(encoder.backbone.model, "bf16")
    assert np.array_equal(encoder.encode(sentences, precision="bf16"), before[0])
    assert not np.array_equal(*before), "premise"
    kinds = {name: weight.dtype for name, weight in encoder.backbone.model.named_parameters()}
    assert kinds["encoder.layer.0.output.dense.weight"] == torch.bfloat16
    assert kinds["embeddings.word_embeddings.weight"] == torch.float32


def test_a_named_format_is_kept(monkeypatch):
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    assert [resolve_precision(given, CPU) for given in ("bf16", "fp32")] == ["bf16", "fp32"]


def test_a_mean_of_bf16_is_not_rounded_to_bf16():
    hidden = torch.randn(3, 9, 5, generator=torch.Generator().manual_seed(0)).bfloat16()
    lengths = torch.tensor([9, 4, 1])
    found = read_mean(hidden, lengths, lengths)
    for row, tokens in enumerate(lengths.tolist()):
        torch.testing.assert_close(found[row], hidden[row, :tokens].float().mean(0))
