"""Fixtures of the tests of cotbert_core."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.methods.decoder import Decoder
from cotbert_core.settings import TrainSettings
from cotbert_core.templates.ragged_ids import Ragged
from tests.core.method_table import make_start


@pytest.fixture
def ids(encoder_folder: str, sentences: list[str]) -> Ragged:
    """The tokens of the sentences, at most 8 of each."""
    return load_backbone(encoder_folder).tokenizer(sentences, 8)


@pytest.fixture
def ends(family: str) -> tuple[int, int]:
    """The ids before and after a bare sentence."""
    return (0, 2) if family == "cot-roberta" else (2, 3)


@pytest.fixture(scope="session")
def headed(bert_folder, with_mlm_head, tmp_path_factory):
    """The tiny BERT with a masked-language-model head."""
    return with_mlm_head(bert_folder, tmp_path_factory.mktemp("headed") / "bert", noise=0.1)


@pytest.fixture
def start(tiny_settings, bert_folder, headed, sentences):
    """Start a method of the table (method_table.make_start)."""
    return make_start(tiny_settings, bert_folder, headed, sentences)


@pytest.fixture(scope="session")
def denosent_settings(tiny_settings: Callable[..., TrainSettings]) -> Callable[..., TrainSettings]:
    """Settings of DenoSent with a small decoder; changes by flat keys."""
    small = {
        "method.name": "denosent",
        "method.layers": 2,
        "method.heads": 2,
        "method.feed_forward": 24,
        "templates.anchor": "denosent",
        "templates.positive": None,
        "templates.negative": None,
    }
    return lambda folder, changes: tiny_settings(folder, small | changes)


@pytest.fixture(scope="session")
def torch_decoder() -> Callable[[Decoder], nn.TransformerDecoder]:
    """A decoder as torch's own layers with the same weights, in eval mode."""
    return _torch_decoder


def _torch_decoder(decoder: Decoder) -> nn.TransformerDecoder:
    first = decoder.layers[0]
    feed_forward, size = first.inward.weight.shape
    layer = nn.TransformerDecoderLayer(size, first.attention.heads, feed_forward, batch_first=True)
    twin = nn.TransformerDecoder(layer, len(decoder.layers)).to(first.inward.weight.dtype)
    weights = {}
    for number, ours in enumerate(decoder.layers):
        # With one key the cross-attention's query and key projections cannot matter: noise.
        values = ours.memory.value
        noise = torch.randn(2 * size, size).to(values.weight)
        named = {
            "self_attn.in_proj_weight": ours.attention.inward.weight,
            "self_attn.in_proj_bias": ours.attention.inward.bias,
            "multihead_attn.in_proj_weight": torch.cat([noise, values.weight]),
            "multihead_attn.in_proj_bias": torch.cat([noise[:, 0], values.bias]),
        }
        linears = {
            "self_attn.out_proj": ours.attention.outward,
            "multihead_attn.out_proj": ours.memory.outward,
            "linear1": ours.inward,
            "linear2": ours.outward,
            **{f"norm{n}": norm for n, norm in enumerate(ours.norms, 1)},
        }
        for name, part in linears.items():
            named |= {f"{name}.weight": part.weight, f"{name}.bias": part.bias}
        weights |= {f"layers.{number}.{name}": value for name, value in named.items()}
    twin.load_state_dict({name: value.detach() for name, value in weights.items()})
    return twin.eval()
