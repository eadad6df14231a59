"""CoT-BERT: two-stage templates, template denoising, extended InfoNCE (paper, section 3).

With `extended: false` the hard negatives appear only in ConPVP's a(i,j-) terms.
"""

from __future__ import annotations

from cotbert_core.encoder.backbone import Backbone
from cotbert_core.encoder.heads import TanhHead, apply_head
from cotbert_core.method_settings.papers import CotBertSettings
from cotbert_core.methods.base import MethodOutput
from cotbert_core.methods.contrastive import Contrastive, View, mean_cosine
from cotbert_core.settings import TrainSettings
from cotbert_core.training.batches import Batch


class CotBert(Contrastive):
    """CoT-BERT: anchor, positive and hard negative are three templates around a sentence.

    With positives from paired texts or documents the positive template wraps that text.
    """

    method: CotBertSettings

    def __init__(self, backbone: Backbone, settings: TrainSettings) -> None:
        super().__init__(backbone, settings)
        negative = ["negative"] if settings.templates.negative is not None else []
        self.templates = [self.bind(role) for role in ("anchor", self.positive_role, *negative)]
        self.head = TanhHead(backbone.model.config)

    def forward(self, batch: Batch) -> MethodOutput:
        texts = (batch.sentences, self.positive_texts(batch), batch.sentences)
        views = [View(*view) for view in zip(self.templates, texts, strict=False)]
        vectors = [apply_head(v, bias, self.head) for v, bias in self.encode(views)]
        loss = self.contrast(vectors, extended=self.method.extended, documents=batch.documents)
        return MethodOutput(loss, {"positive_cosine": mean_cosine(*vectors[:2])})
