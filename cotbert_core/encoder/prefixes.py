"""Trained keys and values that every token of a layer also attends to (P-tuning v2, PromCSE).

They are modules of the model's attention layers, so any code that runs the model uses them. No
other library would load them: a model folder has them in a separate file, and their number in the
config. Letters: n rows, L layers, H heads, P prefix vectors of a layer, d size of a head.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from cotbert_core.encoder.attention import FAMILIES, UNPADDED, attend_to_prefixes, attention_of
from cotbert_core.encoder.locations import saved_part
from cotbert_core.errors import UserError

PREFIX_FILE = "prefix.safetensors"
# The key of P in the config of a model with prefixes.
LENGTH = "cotbert_prefix_length"


class Prefix(nn.Module):
    """The trained keys and values of one layer. vectors: (2, H, P, d)."""

    def __init__(self, config: Any, vectors: Tensor) -> None:
        super().__init__()
        self.vectors = nn.Parameter(vectors)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, rows: int) -> tuple[Tensor, Tensor]:
        """Return keys and values (n, H, P, d), in training with a dropout mask for each row."""
        keys, values = self.dropout(self.vectors[:, None].expand(-1, rows, -1, -1, -1))
        return keys, values


def prefix_length(model: Any) -> int:
    """Return P, the number of keys and values that are trained for each layer; 0: none."""
    return cast(int, getattr(model.config, LENGTH, 0))


def prefixes_of(model: Any) -> list[Prefix]:
    """Return the prefixes of a model with prefixes, one of each layer."""
    return [layer.attention.self.prefix for layer in model.encoder.layer]


def add_new_prefixes(model: Any, name: str, length: int) -> None:
    """Add a new prefix of `length` vectors to every layer of the encoder NAME, initialised like the
    encoder's weights: N(0, 0.02) for BERT."""
    _check(model, name)
    vectors = torch.empty(_shape(model.config, length))
    nn.init.normal_(vectors, std=model.config.initializer_range)
    _add(model, vectors)


def load_prefixes(model: Any, name: str) -> None:
    """Load the prefixes in the folder of an encoder NAME into its model, if its config has some.

    Raises UserError if they are missing or do not fit the model.
    """
    from safetensors.torch import load_file

    length = prefix_length(model)
    if length == 0:
        return
    _check(model, name)
    path = saved_part(name, PREFIX_FILE)
    try:
        vectors = load_file(str(path))["vectors"]
        fits = tuple(vectors.shape) == _shape(model.config, length)
    except Exception:  # safetensors and torch raise errors of their own types
        fits = False
    if not fits or not vectors.is_floating_point():
        raise UserError(
            f"encoder {name!r} needs the trained prefixes of {length!r} vectors, which "
            f"{str(path)!r} does not have: copy the whole folder again"
        )
    _add(model, vectors.float())


def save_prefixes(model: Any, folder: Path) -> None:
    """Write a model's prefixes, if it has any, into a folder, and remove them from the model."""
    from safetensors.torch import save_file

    if prefix_length(model):
        vectors = torch.stack([prefix.vectors.detach() for prefix in prefixes_of(model)])
        save_file({"vectors": vectors.contiguous()}, str(folder / PREFIX_FILE))
        for layer in model.encoder.layer:
            del layer.attention.self.prefix


def _shape(config: Any, length: int) -> tuple[int, ...]:
    heads = config.num_attention_heads
    return config.num_hidden_layers, 2, heads, length, config.hidden_size // heads


def _check(model: Any, name: str) -> None:
    family = model.config.model_type
    if family not in FAMILIES:
        raise UserError(
            f"encoder {name!r} is of the family {family!r}, whose attention cannot have trained "
            f"prefixes: give one of the families {', '.join(FAMILIES)}"
        )
    if attention_of(model) == UNPADDED:
        raise UserError(
            f"attention is {UNPADDED!r} and encoder {name!r} has trained prefixes, which packed "
            "rows cannot have: set attention=auto"
        )


def _add(model: Any, vectors: Tensor) -> None:
    """Add prefixes (L, 2, H, P, d) to the layers of a model."""
    for layer, own in zip(model.encoder.layer, vectors, strict=True):
        prefix = Prefix(model.config, own.clone()).to(model.device).train(model.training)
        layer.attention.self.prefix = prefix
    setattr(model.config, LENGTH, vectors.shape[3])
    attend_to_prefixes(model)
