"""The weighted average of two encoders, tensor by tensor."""

from __future__ import annotations

import pytest
import torch

from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.encoder.merging import merge_backbones, merge_weights
from cotbert_core.errors import UserError
from cotbert_core.saving.model_folder import copy_embedding


def changed(folder, seed=1):
    """The folder's encoder with noise on all weights, as training leaves it."""
    backbone = load_backbone(folder)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in backbone.model.parameters():
            weight += 0.1 * torch.randn(weight.shape, generator=generator)
    return backbone


@pytest.mark.parametrize("weight", [0.0, 0.25, 1.0])
def test_each_weight_is_the_average(encoder_folder, weight):
    first, second = load_backbone(encoder_folder), changed(encoder_folder)
    before = {name: value.clone() for name, value in second.model.state_dict().items()}
    merged = merge_backbones(first, second, weight).model.state_dict()
    one = first.model.state_dict()
    assert merged.keys() == one.keys()
    for name, value in merged.items():
        if name.startswith("pooler.") or not value.is_floating_point():
            torch.testing.assert_close(value, before[name], rtol=0, atol=0)
            continue
        expected = [a + weight * (b - a) for a, b in zip(one[name], before[name], strict=True)]
        torch.testing.assert_close(value, torch.stack(expected))
        assert torch.equal(value, one[name]) == (weight == 0)
        assert torch.equal(value, before[name]) == (weight == 1)
        assert torch.equal(second.model.state_dict()[name], before[name])  # left as it was


def test_the_average_is_computed_in_float32_and_integers_are_the_second_s():
    first = {"a": torch.tensor([2048.0], dtype=torch.half), "n": torch.tensor([1])}
    second = {"a": torch.tensor([2050.0], dtype=torch.half), "n": torch.tensor([2])}
    merged = merge_weights(first, second, 0.25)
    assert merged["a"].item() == 2048.5
    assert merged["n"].item() == 2


def test_a_row_after_the_last_token_is_the_second_s(bert_folder):
    """[READOUT] of a folder with two masks: the plain encoder has no such row, or another size."""
    first, second = load_backbone(bert_folder), changed(bert_folder)
    tokens = len(first.tokenizer.hf)
    copy_embedding(second.model, 4, tokens)
    table = merge_backbones(first, second, 0.5).model.get_input_embeddings().weight
    theirs = second.model.get_input_embeddings().weight
    assert len(table) == tokens + 1
    assert torch.equal(table[tokens], theirs[tokens])
    assert len(merge_backbones(second, first, 0.5).model.get_input_embeddings().weight) == tokens


def test_other_shapes_are_refused_by_name():
    a, b = {"layer.weight": torch.zeros(2, 3)}, {"layer.weight": torch.zeros(2, 4)}
    with pytest.raises(UserError, match=r"'layer.weight' has the shape \(2, 3\) .*\(2, 4\) in the"):
        merge_weights(a, b, 0.5)
    with pytest.raises(UserError, match="only the second encoder has the tensor 'more'"):
        merge_weights(a, {**a, "more": torch.zeros(1)}, 0.5)


def test_encoders_that_only_look_alike_are_refused(bert_folder, roberta_folder):
    bert, roberta = load_backbone(bert_folder), load_backbone(roberta_folder)
    with pytest.raises(UserError, match=r"model_type is 'bert' .* and 'roberta' in"):
        merge_backbones(bert, roberta, 0.5)
    other = load_backbone(bert_folder)
    other.model.config.num_attention_heads = 4
    with pytest.raises(UserError, match=r"num_attention_heads is 2 .* and 4 in"):
        merge_backbones(bert, other, 0.5)
