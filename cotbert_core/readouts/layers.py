"""Means over an encoder's own layers, including special tokens (PromptBERT section 3).

Each readout wraps the model, so that `SentenceEncoder.encode` handles texts, length limit and
batches. Letters: N rows, L tokens, D hidden size.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch


class FirstAndLast:
    """A transformers model whose last layer is the mean of its embedding output and last layer.

    PromptBERT's code calls the embedding output (words, positions and types, after their layer
    norm) the first layer; BERT-whitening and later code of SimCSE use the first Transformer layer.
    """

    def __init__(self, model: Any) -> None:
        self._model = model

    def __call__(self, **inputs: Any) -> SimpleNamespace:
        states = self._model(**inputs, output_hidden_states=True).hidden_states
        return SimpleNamespace(last_hidden_state=(states[0] + states[-1]) / 2)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


class ThreeReadouts(FirstAndLast):
    """A transformers model with three readouts per token, concatenated to (N, L, 3 D).

    They are the last layer, the mean of the first and the last layer, and the first token's last
    layer. The mean over the tokens then has the readouts `THREE_READOUTS` from one forward pass.
    Does not support packed rows, in which only the first row's first token comes first.
    """

    def __call__(self, **inputs: Any) -> SimpleNamespace:
        states = self._model(**inputs, output_hidden_states=True).hidden_states
        first, last = states[0], states[-1]
        parts = [last, (first + last) / 2, last[:, :1].expand_as(last)]
        return SimpleNamespace(last_hidden_state=torch.cat(parts, dim=-1))


# Their names in `cotbert_core.readouts.FEATURES`, in the order of ThreeReadouts' thirds.
THREE_READOUTS = ("last", "first-last", "cls")
