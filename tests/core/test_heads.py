"""Heads behind the readout: against float64 formulas and transformers' own layer."""

from __future__ import annotations

import warnings
from itertools import product
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModelForMaskedLM, DistilBertConfig, ModernBertConfig
from transformers.activations import ACT2FN

from benchmarks.method_table import ALONE
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.encoder.heads import (
    HEAD_FILE,
    HEADS,
    TransformHead,
    apply_head,
    load_head,
    new_head,
)
from cotbert_core.errors import UserError
from cotbert_core.methods import build_method
from tests.core import slow_reference

N, D = 5, 32
CONFIG = SimpleNamespace(hidden_size=D, hidden_act="gelu", layer_norm_eps=1e-5)


@pytest.fixture(params=HEADS)
def head(request):
    """A head that is far from the identity in each of its weights."""
    torch.manual_seed(0)
    made = HEADS[request.param](CONFIG)
    for weight in made.parameters():
        torch.nn.init.normal_(weight, std=0.4)
    return made


@pytest.fixture
def pair():
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(N, D, generator=generator) for _ in range(2)]


def rows(function, *columns):
    return torch.stack([function(*row) for row in zip(*columns, strict=True)])


def test_vectors_and_gradients_equal_the_formula(head, pair):
    exact = slow_reference.exact(head)
    found = apply_head(*pair, head)
    expected = rows(
        lambda v, b: slow_reference.apply_head(exact, v, b), *(x.double() for x in pair)
    )
    torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=0)
    direction = torch.randn(N, D, generator=torch.Generator().manual_seed(2))
    (found * direction).sum().backward()
    (expected * direction.double()).sum().backward()
    for (name, weight), twin in zip(head.named_parameters(), exact.parameters(), strict=True):
        if name == "norm.bias":
            assert not weight.grad.any(), "it is in head(h) and in head(b)"
            continue
        torch.testing.assert_close(weight.grad.double(), twin.grad, atol=1e-4, rtol=1e-4)
        assert twin.grad.abs().max() > 1e-2, name


def test_without_a_bias_or_without_a_head(head, pair):
    exact, (vectors, bias) = slow_reference.exact(head), pair
    expected = rows(lambda v: slow_reference.apply_head(exact, v, None), vectors.double())
    found = apply_head(vectors, None, head)
    torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=0)
    assert torch.equal(apply_head(vectors, bias), vectors - bias)
    assert apply_head(vectors) is vectors


@pytest.mark.parametrize("act", ["gelu", "relu"])
def test_transform_equals_berts_prediction_head(pair, act):
    from transformers import BertConfig
    from transformers.models.bert.modeling_bert import BertPredictionHeadTransform

    config = BertConfig(hidden_size=D, hidden_act=act, layer_norm_eps=1e-3)
    torch.manual_seed(0)
    ours, theirs = TransformHead(config), BertPredictionHeadTransform(config)
    for weight in theirs.parameters():
        torch.nn.init.normal_(weight, std=0.4)
    ours.dense.load_state_dict(theirs.dense.state_dict())
    ours.norm.load_state_dict(theirs.LayerNorm.state_dict())
    torch.testing.assert_close(ours(pair[0]), theirs(pair[0]), atol=1e-6, rtol=0)
    theirs.LayerNorm.eps = CONFIG.layer_norm_eps
    assert (theirs(pair[0]) - ours(pair[0])).abs().max() > 1e-4, "the epsilon is the encoder's"


@pytest.mark.parametrize("method", ["promptbert-supervised", "optiprompt"])
def test_a_transform_begins_as_the_checkpoints_own_or_says_that_it_is_new(
    tiny_settings, encoder_folder, with_mlm_head, tmp_path, pair, method
):
    headed = with_mlm_head(encoder_folder, tmp_path / "headed", noise=0.1)
    whole = AutoModelForMaskedLM.from_pretrained(headed)
    message = "has no masked-language-model head: the transform head starts with new weights"
    for folder, name in product((headed, encoder_folder), HEADS):
        plain = {**ALONE, "method.name": method}
        chosen = {"templates.anchor": "promptbert/manual", "method.head": name}
        torch.manual_seed(1)
        made = build_method(load_backbone(folder), tiny_settings(folder, plain | chosen))
        head = made.kept_head or made.head
        told = sum(message in note for note in made.notes(("augmented", "negative")))
        assert told == (folder != headed and name == "transform")
        if folder != headed or name == "tanh":  # as in the released code
            assert head.dense.weight.std().item() == pytest.approx(0.02, rel=0.1)
            assert not head.dense.bias.any()
        elif whole.config.model_type == "bert":
            expected = whole.cls.predictions.transform(pair[0])
            torch.testing.assert_close(head(pair[0]), expected, atol=1e-6, rtol=0)
        else:
            active = torch.nn.functional.gelu(whole.lm_head.dense(pair[0]))
            expected = whole.lm_head.layer_norm(active)
            torch.testing.assert_close(head(pair[0]), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("config", "activation", "epsilon"),
    [
        (DistilBertConfig(dim=D, activation="relu"), "relu", 1e-12),
        (ModernBertConfig(hidden_size=D, hidden_activation="silu", norm_eps=1e-3), "silu", 1e-3),
    ],
)
def test_a_family_with_other_names_in_its_config_gets_a_new_transform(
    encoder_folder, config, activation, epsilon
):
    backbone = load_backbone(encoder_folder)
    backbone.model.config = config
    head = new_head("transform", backbone)
    assert head.fresh
    assert type(head.activation) is type(ACT2FN[activation])
    assert head.norm.eps == epsilon


def test_a_head_is_loaded_from_the_folder_or_its_absence_reported(head, bert_folder, tmp_path):
    from safetensors.torch import save_file

    backbone = load_backbone(bert_folder)
    name = next(n for n, kind in HEADS.items() if isinstance(head, kind))
    with pytest.raises(UserError) as caught:
        load_head(name, str(tmp_path), backbone)
    assert f"needs its {name} head and the folder has no {HEAD_FILE}" in str(caught.value)
    save_file(dict(head.state_dict()), str(tmp_path / HEAD_FILE))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = load_head(name, str(tmp_path), backbone)
    assert not again.training
    assert all(torch.equal(v, again.state_dict()[k]) for k, v in head.state_dict().items())
