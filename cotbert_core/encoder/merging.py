"""The weighted average of two equally shaped encoders (LM-Cocktail, arXiv 2311.13534)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from cotbert_core.encoder.backbone import Backbone
from cotbert_core.errors import UserError

# Keys of config.json in which encoders with equal tensor shapes can differ.
_CONFIG = ("model_type", "num_attention_heads", "hidden_act", "layer_norm_eps")
# transformers adds a pooler with random weights to a checkpoint without one; it is never used.
_UNUSED = "pooler."
_MERGE_ALIKE = (
    "merge two encoders of one shape, such as an encoder and what was trained from it by a method "
    "other than promcse and optiprompt, which train added weights alone"
)


def merge_weights(
    first: Mapping[str, Tensor], second: Mapping[str, Tensor], weight: float
) -> dict[str, Tensor]:
    """Return (1 - weight) * first + weight * second for each tensor, computed in float32.

    Integer tensors, which are tables of positions, and the unused pooler come from `second`. Raises
    UserError for a tensor that only one of them has, or with different shapes.
    """
    for name in sorted(first.keys() ^ second.keys()):
        raise UserError(
            f"only the {'first' if name in first else 'second'} encoder has the tensor {name!r}: "
            f"{_MERGE_ALIKE}"
        )
    for name in second:
        if first[name].shape != second[name].shape:
            raise UserError(
                f"the tensor {name!r} has the shape {tuple(first[name].shape)} in the first "
                f"encoder and {tuple(second[name].shape)} in the second: {_MERGE_ALIKE}"
            )
    return {
        name: (1 - weight) * first[name].to(value.device).float() + weight * value.float()
        if value.is_floating_point() and not name.startswith(_UNUSED)
        else value
        for name, value in second.items()
    }


def merge_backbones(first: Backbone, second: Backbone, weight: float) -> Backbone:
    """Return the second encoder with the averaged weights; UserError if they do not match."""
    _check_config(first, second)
    second_weights = second.model.state_dict()
    merged = merge_weights(_same_rows(first, second), second_weights, weight)
    if first.tokenizer.hash != second.tokenizer.hash:
        raise UserError(
            f"the encoders {first.name!r} and {second.name!r} have different tokenizers (hashes "
            f"{first.tokenizer.hash} and {second.tokenizer.hash}), so a row of the one's word "
            "embeddings is another token in the other: merge an encoder and what was trained from "
            "it"
        )
    model = copy.deepcopy(second.model)
    model.load_state_dict(merged)
    return replace(second, model=model)


def _check_config(first: Backbone, second: Backbone) -> None:
    for name in _CONFIG:
        values = [getattr(one.model.config, name, None) for one in (first, second)]
        if values[0] != values[1]:
            raise UserError(
                f"{name} is {values[0]!r} in the encoder {first.name!r} and {values[1]!r} in "
                f"{second.name!r}: {_MERGE_ALIKE}"
            )


def _same_rows(first: Backbone, second: Backbone) -> dict[str, Tensor]:
    """Return the first encoder's weights, with the second's word embeddings after the last token.

    A model folder with several masks has a row for [READOUT], which its plain tokenizer lacks.
    """
    weights = dict(first.model.state_dict())
    table = second.model.get_input_embeddings().weight
    others = second.model.state_dict()
    name = next(name for name, value in others.items() if value.data_ptr() == table.data_ptr())
    tokens = len(second.tokenizer.hf)
    if len(weights[name]) >= tokens:
        weights[name] = torch.cat([weights[name][:tokens], others[name][tokens:]])
    return weights
