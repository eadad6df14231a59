"""Means over an encoder's own layers, special tokens included (PromptBERT section 3).

The text of a sentence, its length limit and the batches are `SentenceEncoder.encode`'s. Letters:
N rows, L tokens, D hidden size.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch

from cotbert_core.encoder.backbone import Backbone


class FirstAndLast:
    """A transformers model whose last layer is the mean of its embedding output and its last.

    The embedding output (words, positions and types, after their layer norm) is what SimCSE and
    PromptBERT call the first layer; BERT-whitening takes the first Transformer layer.
    """

    def __init__(self, model: Any) -> None:
        self._model = model

    def __call__(self, **inputs: Any) -> SimpleNamespace:
        states = self._model(**inputs, output_hidden_states=True).hidden_states
        return SimpleNamespace(last_hidden_state=(states[0] + states[-1]) / 2)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


class ThreeReadouts(FirstAndLast):
    """A transformers model whose last layer is (N, L, 3 D): at every token its last layer, the
    mean of its first and last, and the first token's last layer, side by side.

    The mean over the tokens then holds the readouts `THREE_READOUTS` of one forward pass. Not for
    packed rows, whose first tokens are in one line with all others.
    """

    def __call__(self, **inputs: Any) -> SimpleNamespace:
        states = self._model(**inputs, output_hidden_states=True).hidden_states
        first, last = states[0], states[-1]
        parts = [last, (first + last) / 2, last[:, :1].expand_as(last)]
        return SimpleNamespace(last_hidden_state=torch.cat(parts, dim=-1))


# By their names in `cotbert_core.readouts.FEATURES`, in the order of ThreeReadings' thirds.
THREE_READOUTS = ("last", "first-last", "cls")


def three_readouts(backbone: Backbone) -> Backbone:
    """The encoder whose mean over the tokens is three readouts at once, (N, 3 D)."""
    return replace(backbone, model=ThreeReadouts(backbone.model))


def first_and_last(backbone: Backbone) -> Backbone:
    """The encoder read at its first and last layer, each (N, L, D), in place of its last."""
    return replace(backbone, model=FirstAndLast(backbone.model))
