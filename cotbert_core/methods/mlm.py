"""Masked language modelling (Devlin et al., 2019) on packed rows: continued, or from scratch.

The vocabulary head only computes the masked tokens, 1,229 of 8,192: on all tokens the head of
all-MiniLM-L6-v2 would have more work than the encoder.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.profiler import record_function

from cotbert_core.encoder.backbone import Backbone
from cotbert_core.encoder.forward import hidden_at
from cotbert_core.encoder.length_batches import padding
from cotbert_core.encoder.mlm import mlm_head
from cotbert_core.encoder.pooling_config import PoolingConfig
from cotbert_core.encoder.pooling_files import readable_pooling
from cotbert_core.method_settings.baselines import MlmSettings
from cotbert_core.methods.base import Method, MethodOutput
from cotbert_core.methods.contrastive import train_budget
from cotbert_core.methods.without_template import plain_pooling_config
from cotbert_core.settings import TrainSettings
from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.templates.wrapping import BoundTemplate
from cotbert_core.training.batches import Batch
from cotbert_core.training.devices import to_device
from cotbert_core.training.distributed import rank, sums, world_size
from cotbert_core.training.flops import Work, encoder_flops, linear_weights
from cotbert_core.training.masking import Masked, Masking, word_continuations
from cotbert_core.training.precision import autocast

# Masked tokens that the vocabulary head scores at once: for 30,522 tokens 250 MB of float32.
HEAD_TOKENS = 2048
# Held-out rows are masked at the same positions in every run.
DEV_SEED, DEV_SHARE = 0, 0.15


class Mlm(Method):
    """A masked language model, saved with its vocabulary head."""

    method: MlmSettings

    def __init__(self, backbone: Backbone, settings: TrainSettings) -> None:
        super().__init__(backbone, settings)
        plain = backbone.tokenizer.hf
        mask_id = self.require_mask()
        self.bare = BoundTemplate.bind(None, plain)
        self.vocabulary = mlm_head(backbone)
        tokens = len(plain)
        continues = word_continuations(plain, tokens) if self.method.whole_word else None
        self.masking = Masking(self.method.mask_share, mask_id, tokens, continues)

    def forward(self, batch: Batch) -> MethodOutput:
        """Return the mean cross-entropy over the masked tokens of all workers."""
        masked = self.masking(batch.sentences, self.settings.seed, self.step)
        hidden, target = self._hidden(batch.sentences, masked)
        lengths = batch.sentences.lengths + self.bare.length
        budget = train_budget(self.backbone.device)
        padded, _ = padding(lengths, *budget, packed=self.backbone.packs)
        head = 6.0 * linear_weights(self.vocabulary)[0] * len(target)
        flops = encoder_flops(self.encoder, lengths) + head
        self.work += Work(tokens=float(lengths.sum()), padding=padded, flops=flops)
        total = torch.zeros((), device=hidden.device)
        with record_function("loss"):
            for piece, wanted in _pieces(hidden, target):
                scores = self.vocabulary(piece).float()
                total = total + F.cross_entropy(scores, wanted, reduction="sum")
        (tokens,) = sums([float(len(target))])
        return MethodOutput(total * world_size() / tokens)

    def accuracy(self, rows: Ragged) -> float:
        """Return the share in % of masked tokens of held-out rows that are predicted.

        15 % of the tokens, always the same ones, are replaced by the mask. Each worker computes its
        share of the rows.
        """
        own = rows.take(np.arange(rank(), len(rows), world_size()))
        masking = replace(self.masking, share=DEV_SHARE, continues=None)
        right = 0.0
        self.eval()
        with torch.inference_mode(), autocast(self.settings.precision, self.backbone.device):
            hidden, target = self._hidden(own, masking.only_masks(own, DEV_SEED))
            for piece, wanted in _pieces(hidden, target):
                right += float((self.vocabulary(piece).argmax(dim=-1) == wanted).sum())
        right, all_of_them = sums([right, float(len(target))])
        return 100 * right / all_of_them

    def _hidden(self, rows: Ragged, masked: Masked) -> tuple[Tensor, Tensor]:
        """Return the last layer (M, D) at the chosen tokens, and the M original tokens."""
        wrapped = self.bare.wrap(masked.ids)
        chosen = np.zeros(tuple(wrapped.ids.shape), bool)
        row = np.repeat(np.arange(len(rows)), rows.lengths)
        place = np.arange(len(row)) - rows.offsets[row] + len(self.bare.before)
        chosen[row, place] = masked.chosen
        batches = train_budget(self.backbone.device)
        hidden, order = hidden_at(self.backbone, wrapped, torch.from_numpy(chosen), *batches)
        target = torch.from_numpy(rows.flat[masked.chosen].astype(np.int64))[order]
        return hidden, to_device(target, self.backbone.device)

    def notes(self, columns: Sequence[str]) -> list[str]:
        if not self.vocabulary.fresh:
            return []
        return [
            f"encoder {self.backbone.name!r} has no masked-language-model head: a new one is "
            "trained, tied to the encoder's word embeddings"
        ]

    @property
    def pooling(self) -> PoolingConfig:
        """The encoder's own cls or mean, else the mean."""
        own = readable_pooling(self.backbone.name).get("readout")
        return plain_pooling_config(self.settings, "cls" if own == "cls" else "mean")

    @property
    def finished(self) -> Backbone:
        return replace(self.backbone, vocabulary=self.vocabulary)


def _pieces(hidden: Tensor, target: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Return the vectors (M, D) and tokens (M,) in pieces that the vocabulary head scores."""
    return zip(torch.split(hidden, HEAD_TOKENS), torch.split(target, HEAD_TOKENS), strict=True)
