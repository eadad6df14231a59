"""DiffCSE's discriminator: an encoder that detects replaced tokens, given a sentence vector.

Letters: b rows of this worker, L longest row in tokens, D hidden size.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cotbert_core.encoder.backbone import Backbone
from cotbert_core.encoder.forward import attention_mask
from cotbert_core.encoder.length_batches import slices_of
from cotbert_core.methods.contrastive import train_budget
from cotbert_core.templates.wrapping import Rows
from cotbert_core.training.devices import to_device
from cotbert_core.training.gradient_cache import recomputed


class Discriminator(nn.Module):
    """A copy of an encoder with a layer that scores each token as original or replaced."""

    def __init__(self, backbone: Backbone, mini_batch_size: int | None) -> None:
        super().__init__()
        self.mini_batch_size = mini_batch_size
        self.encoder = copy.deepcopy(backbone.model)
        self.detector = nn.Linear(backbone.hidden_size, 2)
        self._mask = partial(attention_mask, replace(backbone, model=self.encoder))

    def forward(self, edited: Tensor, original: Rows, vectors: Tensor) -> Tensor:
        """Return the scalar sum of the cross-entropies of all tokens, special ones included.

        edited: (b, L) ids of the original rows, some of them replaced. vectors: (b, D). Both are on
        the encoder's device, for which the host does not wait.
        """
        device, lengths = vectors.device, original.lengths.numpy()
        before = to_device(original.ids, device)
        order = np.argsort(-lengths, kind="stable")
        total = torch.zeros((), device=device)
        budget, start_tokens = train_budget(device)
        most = self.mini_batch_size
        for start, stop in slices_of(lengths[order], budget, most, start_tokens):
            chosen, width = torch.from_numpy(order[start:stop]), int(lengths[order[start]])
            attended = torch.arange(width) < original.lengths[chosen, None]
            rows = to_device(chosen, device)
            ids = edited.index_select(0, rows)[:, :width]
            replaced = ids != before.index_select(0, rows)[:, :width]
            wanted = replaced.long().masked_fill(to_device(~attended, device), -100)
            piece = ids, self._mask_on(device, attended), vectors.index_select(0, rows), wanted
            if most:
                total = total + recomputed(self._loss, *piece, device=device)
            else:
                total = total + self._loss(*piece)
        return total

    def _mask_on(self, device: torch.device, attended: Tensor) -> Tensor | None:
        """Return the attention mask of n rows. attended: (n, L) bool on the CPU."""
        mask = self._mask(attended)
        return None if mask is None else to_device(mask, device)

    def _loss(self, ids: Tensor, mask: Tensor | None, vectors: Tensor, wanted: Tensor) -> Tensor:
        """Return the summed cross-entropy of n rows (n, L), with vectors (n, D) in [CLS]'s place.

        wanted: (n, L) 1 at a replaced token, 0 at another, -100 at padding.
        """

        def with_vectors(_: nn.Module, __: object, embedded: Tensor) -> Tensor:
            return torch.cat([vectors[:, None].to(embedded.dtype), embedded[:, 1:]], dim=1)

        with self.encoder.embeddings.register_forward_hook(with_vectors):
            hidden = self.encoder(ids, attention_mask=mask).last_hidden_state
        return F.cross_entropy(self.detector(hidden).float().mT, wanted, reduction="sum")
