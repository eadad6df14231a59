"""DiffCSE's discriminator: an encoder that reads a sentence vector and tells replaced tokens.

Letters: b rows of this worker, L longest row in tokens, D hidden size.
"""

from __future__ import annotations

import copy

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cotbert_core.encoder.backbone import Backbone
from cotbert_core.encoder.length_batches import slices_of
from cotbert_core.methods.contrastive import train_budget
from cotbert_core.templates.wrapping import Rows
from cotbert_core.training.devices import to_device


class Discriminator(nn.Module):
    """A copy of an encoder with a layer that scores each token as original or replaced."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.encoder = copy.deepcopy(backbone.model)
        self.detector = nn.Linear(backbone.hidden_size, 2)

    def forward(self, edited: Rows, original: Rows, vectors: Tensor) -> Tensor:
        """Return the scalar sum of the cross-entropies of all tokens, special ones included.

        edited, original: b rows of the same lengths. vectors: (b, D).
        """
        lengths = edited.lengths.numpy()
        order = np.argsort(-lengths, kind="stable")
        budget, start_tokens = train_budget(vectors.device)
        total = torch.zeros((), device=vectors.device)
        for start, stop in slices_of(lengths[order], budget, None, start_tokens):
            chosen, width = torch.from_numpy(order[start:stop]), int(lengths[order[start]])
            ids = edited.ids[chosen, :width]
            attended = torch.arange(width) < edited.lengths[chosen, None]
            replaced = (ids != original.ids[chosen, :width]).long().masked_fill(~attended, -100)
            parts = (ids, attended.long(), chosen, replaced)
            ids, mask, own, wanted = (to_device(part, vectors.device) for part in parts)
            hidden = self._hidden(ids, mask, vectors.index_select(0, own))
            scores = self.detector(hidden).float()
            total = total + F.cross_entropy(scores.mT, wanted, reduction="sum")
        return total

    def _hidden(self, ids: Tensor, attended: Tensor, vectors: Tensor) -> Tensor:
        """Return the last layer (n, L, D) of n rows, with vectors (n, D) in the place of [CLS]."""

        def with_vectors(_: nn.Module, __: object, embedded: Tensor) -> Tensor:
            return torch.cat([vectors[:, None].to(embedded), embedded[:, 1:]], dim=1)

        with self.encoder.embeddings.register_forward_hook(with_vectors):
            output: Tensor = self.encoder(ids, attention_mask=attended).last_hidden_state
        return output
