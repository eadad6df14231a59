"""SNCSE (Wang et al., 2022): the negation of a sentence is its soft negative.

Two templates around a sentence are contrasted by InfoNCE. Its negation, in the second template, has
the opposite meaning in the same words: the bidirectional margin loss keeps it slightly less similar
than the positive. Vectors are read at the mask; the head after it is dropped after training.
"""

from __future__ import annotations

from torch.profiler import record_function

from cotbert_core.encoder.backbone import Backbone
from cotbert_core.encoder.heads import TanhHead, apply_head
from cotbert_core.losses import bidirectional_margin
from cotbert_core.method_settings.baselines import SncseSettings
from cotbert_core.methods.base import MethodOutput
from cotbert_core.methods.contrastive import Contrastive, View, mean_cosine
from cotbert_core.methods.negation import Negation
from cotbert_core.settings import TrainSettings
from cotbert_core.training.batches import Batch


class Sncse(Contrastive):
    """SNCSE without labels: two templates around a sentence, the second one around its negation."""

    method: SncseSettings

    def __init__(self, backbone: Backbone, settings: TrainSettings) -> None:
        super().__init__(backbone, settings)
        self.anchor, self.positive = self.bind("anchor"), self.bind("positive")
        self.negation = Negation(backbone.tokenizer)
        self.head = TanhHead(backbone.model.config)

    def forward(self, batch: Batch) -> MethodOutput:
        # A negation may be a few tokens longer than its sentence.
        room = self.backbone.max_tokens - self.positive.length
        negated = self.negation(batch.sentences).cut(room)
        views = [
            View(self.anchor, batch.sentences),
            View(self.positive, batch.sentences),
            View(self.positive, negated),
        ]
        vectors = [apply_head(v, bias, self.head) for v, bias in self.encode(views)]
        contrast = self.contrast(vectors[:2])
        with record_function("loss"):
            margin = bidirectional_margin(*vectors, alpha=self.method.alpha, beta=self.method.beta)
        parts = {
            "positive_cosine": mean_cosine(vectors[0], vectors[1]),
            "negative_cosine": mean_cosine(vectors[0], vectors[2]),
            "contrastive": contrast,
            "margin": margin,
        }
        return MethodOutput(contrast + self.method.margin_weight * margin, parts)
