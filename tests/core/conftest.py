"""Fixtures of the tests of cotbert_core."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from benchmarks.method_table import BARE
from cotbert_core.encoder.backbone import Backbone, load_backbone
from cotbert_core.encoder.pooling_config import PoolingConfig
from cotbert_core.methods.decoder import Decoder
from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.settings import TrainSettings
from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.training.batches import Batch
from tests.core.method_table import make_start
from tests.core.slow_reference import wide_head

# The settings of a run that tests change; all others are of its method.
OF_THE_RUN = ("dropout", "attention", "mini_batch_size", "seed", "batch_size")


@pytest.fixture
def backbone(encoder_folder: str) -> Backbone:
    return load_backbone(encoder_folder)


@pytest.fixture
def ids(backbone: Backbone, sentences: list[str]) -> Ragged:
    """The tokens of the sentences, at most 8 of each."""
    return backbone.tokenizer(sentences, 8)


@pytest.fixture
def triples(ids: Ragged) -> Batch:
    """Each sentence with two others, as its positive and its hard negative."""
    return Batch(ids, ids.take([1, 2, 3, 4, 5, 0]), ids.take([3, 5, 0, 1, 2, 4]))


@pytest.fixture
def prompts(family: str) -> str:
    """The group of PromptBERT's templates that suits the encoder."""
    return "promptroberta" if family == "cot-roberta" else "promptbert"


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


@pytest.fixture
def make_bare(encoder_folder, tiny_settings):
    """Make a method that needs no template, in its third step, with a head wide enough to matter.

    Settings are keywords; those of the method without their `method.`.
    """

    def build(name, folder=encoder_folder, **changes):
        flat = {k if k in OF_THE_RUN else f"method.{k}": v for k, v in changes.items()}
        settings = tiny_settings(folder, {"method.name": name, **BARE, **flat})
        method = wide_head(settings)
        method.step = 3
        return method

    return build


@pytest.fixture(scope="session")
def other_encoder(tmp_path_factory):
    """From an encoder's folder and a seed, that of another encoder with the same tokenizer, which
    is read by its means."""

    @functools.cache
    def make(folder, seed):
        backbone = load_backbone(folder)
        torch.manual_seed(seed)
        with torch.no_grad():
            for weight in backbone.model.parameters():
                weight += 0.1 * torch.randn_like(weight)
        place = tmp_path_factory.mktemp("other") / Path(folder).name
        SentenceEncoder(backbone, PoolingConfig("mean", blank=True)).save_pretrained(place)
        return str(place)

    return make


@pytest.fixture(scope="session")
def denosent_settings(tiny_settings: Callable[..., TrainSettings]) -> Callable[..., TrainSettings]:
    """Settings of DenoSent with a small decoder; changes by flat keys."""
    small = {
        "method.name": "denosent",
        "method.layers": 2,
        "method.heads": 2,
        "method.feed_forward": 24,
        **BARE,
        "templates.anchor": "denosent",
    }
    return lambda folder, changes: tiny_settings(folder, small | changes)


def torch_weights(decoder, read):
    """Our weights under the names of torch's layers, each as `read` makes it."""
    found = {}
    for number, layer in enumerate(decoder.layers):
        named = {
            "self_attn.in_proj_{}": layer.attention.inward,
            "self_attn.out_proj.{}": layer.attention.outward,
            "multihead_attn.in_proj_{}": layer.memory.value,
            "multihead_attn.out_proj.{}": layer.memory.outward,
            "linear1.{}": layer.inward,
            "linear2.{}": layer.outward,
            **{f"norm{n}.{{}}": norm for n, norm in enumerate(layer.norms, 1)},
        }
        for name, part in named.items():
            for kind in ("weight", "bias"):
                found[f"layers.{number}.{name.format(kind)}"] = read(getattr(part, kind))
    return found


@pytest.fixture(scope="session")
def torch_decoder() -> Callable[[Decoder], nn.TransformerDecoder]:
    """A decoder as torch's own layers with the same weights, in eval mode."""

    def make(decoder):
        first = decoder.layers[0]
        feed_forward, size = first.inward.weight.shape
        heads = first.attention.heads
        layer = nn.TransformerDecoderLayer(size, heads, feed_forward, batch_first=True)
        twin = nn.TransformerDecoder(layer, len(decoder.layers)).to(first.inward.weight.dtype)
        own = torch_weights(decoder, lambda weight: weight)
        with torch.no_grad():
            for name, weight in twin.named_parameters():
                ours = own[name]
                # With one key the cross-attention's query and key projections cannot matter.
                weight.normal_()[-len(ours) :] = ours
        return twin.eval()

    return make
