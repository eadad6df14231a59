"""ArcCSE (Zhang et al., ACL 2022): an angular margin, and a triplet loss on masked sentences.

ArcCon adds an angular margin to SimCSE's positive. The triplet loss requires a sentence to be
closer to itself with a few words masked than to itself with more words masked.
No code was released; docs/methods.md lists our choices.
Letter: N sentences.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch.profiler import record_function

from cotbert_core.encoder.backbone import Backbone
from cotbert_core.losses import arc_con, triplet_hinge
from cotbert_core.method_settings.baselines import ArcCseSettings
from cotbert_core.methods.base import MethodOutput
from cotbert_core.methods.contrastive import mean_cosine
from cotbert_core.methods.without_template import WithoutTemplate
from cotbert_core.settings import TrainSettings
from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.training.batches import Batch
from cotbert_core.training.devices import to_device
from cotbert_core.training.distributed import gather_with_gradient, rank
from cotbert_core.training.masking import word_continuations, word_numbers
from cotbert_core.training.token_numbers import TokenNumbers


class ArcCse(WithoutTemplate):
    """ArcCSE without labels. The triplets are made from the contrasted sentences."""

    method: ArcCseSettings

    def __init__(self, backbone: Backbone, settings: TrainSettings) -> None:
        super().__init__(backbone, settings)
        plain = backbone.tokenizer.hf
        self.mask_id = self.require_mask()
        self.continues = word_continuations(plain, len(plain))

    def forward(self, batch: Batch) -> MethodOutput:
        sentences = batch.sentences
        masked = self.masked(sentences) if self.method.triplet_weight else ()
        first, second, *versions = self.vectors(sentences, sentences, *masked)
        with record_function("loss"):
            loss = arc_con(
                first,
                gather_with_gradient(second),
                temperature=self.temperature,
                margin=math.radians(self.method.margin),
                first=len(first) * rank(),
            )
        parts = {"positive_cosine": mean_cosine(first, second)}
        if masked:
            ordered = to_device(torch.from_numpy(differ(*masked)), first.device)
            nearer, farther = versions
            with record_function("loss"):
                triplet = triplet_hinge(
                    first, nearer, farther, ordered, margin=self.method.triplet_margin
                )
            parts |= {"contrastive": loss, "triplet": triplet}
            loss = loss + self.method.triplet_weight * triplet
        return MethodOutput(loss, parts)

    def masked(self, sentences: Ragged) -> tuple[Ragged, Ragged]:
        """Return the sentences with a few words masked, and those with more words masked."""
        return masked_spans(
            sentences,
            self.continues,
            self.mask_id,
            (self.method.less_masked, self.method.more_masked),
            TokenNumbers(sentences, self.settings.seed, self.step),
        )


def masked_spans(
    sentences: Ragged,
    continues: np.ndarray,
    mask_id: int,
    shares: tuple[float, float],
    numbers: TokenNumbers,
) -> tuple[Ragged, Ragged]:
    """Return N sentences in which a smaller and a larger share of consecutive words is masked.

    The smaller span is inside the larger one. Each has its share of a sentence's words, rounded and
    at least one; every token of a masked word becomes a mask. continues: (vocabulary,) bool, True
    for a token that continues a word. shares: of the smaller and the larger span.
    """
    row = np.repeat(np.arange(len(sentences)), sentences.lengths)
    word = word_numbers(sentences, continues)
    begins = np.diff(word, prepend=-1) > 0
    count = np.bincount(row, begins, len(sentences)).astype(np.int64)
    place = word - (np.cumsum(count) - count)[row]
    small, large = (np.minimum(count, np.maximum(1, np.rint(s * count))) for s in shares)
    outer = np.floor(numbers.of_rows(0) * (count - large + 1))
    inner = outer + np.floor(numbers.of_rows(1) * (large - small + 1))

    def masked(start: np.ndarray, size: np.ndarray) -> Ragged:
        span = (place >= start[row]) & (place < (start + size)[row])
        return Ragged(np.where(span, mask_id, sentences.flat).astype(np.int32), sentences.offsets)

    return masked(inner, small), masked(outer, large)


def differ(left: Ragged, right: Ragged) -> np.ndarray:
    """Return (N,) bool: whether two lists of N equally long sentences differ in a sentence."""
    row = np.repeat(np.arange(len(left)), left.lengths)
    return np.bincount(row, left.flat != right.flat, len(left)) > 0
