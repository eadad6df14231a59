"""ESimCSE (Wu et al., COLING 2022): repeated tokens in the positive and a queue of negatives.

SimCSE's two views have the same length, so it learns that sentences of equal length are similar;
here the positive repeats some tokens (section 3.2). Sentences of earlier steps, encoded by a
momentum encoder without dropout, are further negatives (section 3.3).
Letters: N sentences, b rows of this worker, B of the global batch, Q rows of the queue.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.profiler import record_function

from cotbert_core.encoder.backbone import Backbone
from cotbert_core.encoder.heads import apply_head
from cotbert_core.losses import info_nce
from cotbert_core.method_settings.baselines import ESimCseSettings
from cotbert_core.methods.base import MethodOutput
from cotbert_core.methods.contrastive import mean_cosine
from cotbert_core.methods.without_template import WithoutTemplate
from cotbert_core.settings import TrainSettings
from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.training.batches import Batch
from cotbert_core.training.distributed import gather, gather_with_gradient, rank
from cotbert_core.training.token_changes import repeat_sampled
from cotbert_core.training.token_numbers import TokenNumbers


class ESimCse(WithoutTemplate):
    """ESimCSE without labels. The queue and its encoder are part of a checkpoint."""

    queue: Tensor

    method: ESimCseSettings

    def __init__(self, backbone: Backbone, settings: TrainSettings) -> None:
        super().__init__(backbone, settings)
        rows = round(self.method.queue * settings.batch_size)
        self.slow = copy.deepcopy(backbone.model).requires_grad_(False) if rows else None
        empty = torch.zeros(rows, backbone.hidden_size, device=backbone.device)
        self.register_buffer("queue", empty)

    def train(self, mode: bool = True) -> ESimCse:
        """Set the training mode of all but the momentum encoder, which never has dropout."""
        super().train(mode)
        if self.slow is not None:
            self.slow.eval()
        return self

    def forward(self, batch: Batch) -> MethodOutput:
        repeated = repeat_tokens(
            batch.sentences, self.method.repetition, self.settings.seed, self.step
        )
        room = self.backbone.max_tokens - self.bare.length
        anchor, positive = self.vectors(batch.sentences, repeated.cut(room))
        # After n steps the last rows of the queue are those of the last n batches.
        filled = min(len(self.queue), max(0, self.step - 1) * self.settings.batch_size)
        with record_function("loss"):
            loss = info_nce(
                anchor,
                gather_with_gradient(positive),
                self.queue[len(self.queue) - filled :] if filled else None,
                temperature=self.temperature,
                first=len(anchor) * rank(),
            )
        if self.slow is not None:
            self._enqueue(batch.sentences)
        return MethodOutput(loss, {"positive_cosine": mean_cosine(anchor, positive)})

    @torch.no_grad()
    def _enqueue(self, sentences: Ragged) -> None:
        """Update the momentum encoder and append the sentences of all workers to the queue.

        As in the released code, this follows the step's loss and precedes its weight update.
        """
        assert self.slow is not None
        for late, now in zip(self.slow.parameters(), self.encoder.parameters(), strict=True):
            late.lerp_(now, 1 - self.method.momentum)
        rows, slow = [self.bare.wrap(sentences)], replace(self.backbone, model=self.slow)
        (raw,) = self._encode_rows(rows, backbone=slow)
        new = gather(apply_head(raw, None, self.head).to(self.queue.dtype))
        self.queue.copy_(torch.cat([self.queue, new])[len(new) :])


def repeat_tokens(sentences: Ragged, share: float, seed: int, step: int) -> Ragged:
    """Return N sentences with some tokens repeated (paper, section 3.2, equation 4).

    A sentence of n tokens repeats 0 to max(2, share * n) of them, uniformly distributed, each token
    at most once.
    """
    numbers, lengths = TokenNumbers(sentences, seed, step), sentences.lengths
    most = np.minimum(np.maximum(2, (share * lengths).astype(np.int64)), lengths)
    counts = (numbers.of_rows(0) * (most + 1)).astype(np.int64)
    return repeat_sampled(sentences, counts, numbers.of_tokens(1))
