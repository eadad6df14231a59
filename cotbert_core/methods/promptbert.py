"""PromptBERT (paper, section 4.3): without labels, and supervised by triples.

Without labels the two views of a sentence are two templates around it; with equal templates they
differ only in dropout (Table 8). The supervised method puts one template around sentence,
entailment and contradiction, and keeps head and denoising at inference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cotbert_core.encoder.backbone import Backbone
from cotbert_core.encoder.heads import TanhHead, apply_head, head_notes, new_head
from cotbert_core.encoder.pooling_config import PoolingConfig
from cotbert_core.method_settings.papers import PromptBertSettings, SupervisedPromptBertSettings
from cotbert_core.methods.base import MethodOutput
from cotbert_core.methods.contrastive import Contrastive, View, mean_cosine
from cotbert_core.settings import TrainSettings
from cotbert_core.training.batches import Batch


class PromptBert(Contrastive):
    """PromptBERT without labels: two templates, around each sentence and around its positive."""

    method: PromptBertSettings

    def __init__(self, backbone: Backbone, settings: TrainSettings) -> None:
        super().__init__(backbone, settings)
        self.templates = [self.bind("anchor"), self.bind(self.positive_role)]
        self.head = TanhHead(backbone.model.config)

    def forward(self, batch: Batch) -> MethodOutput:
        texts = (batch.sentences, self.positive_texts(batch))
        views = [View(*view) for view in zip(self.templates, texts, strict=True)]
        vectors = [apply_head(v, bias, self.head) for v, bias in self.encode(views)]
        loss = self.contrast(vectors, documents=batch.documents)
        return MethodOutput(loss, {"positive_cosine": mean_cosine(*vectors)})

    @property
    def dev_pooling(self) -> PoolingConfig:
        pooling, method = super().dev_pooling, self.method
        if method.dev_reading == "inference":
            return pooling
        return replace(pooling, denoise=method.denoise, pad_positions=method.pad_positions)


class SupervisedPromptBert(Contrastive):
    """Supervised PromptBERT: one template for each text of a triple; InfoNCE with a(i,j-)."""

    method: SupervisedPromptBertSettings

    def __init__(self, backbone: Backbone, settings: TrainSettings) -> None:
        super().__init__(backbone, settings)
        self.anchor = self.bind("anchor")
        self.kept_head = new_head(self.method.head, backbone)

    def forward(self, batch: Batch) -> MethodOutput:
        assert batch.augmented is not None
        assert batch.negative is not None
        texts = (batch.sentences, batch.augmented, batch.negative)
        encoded = self.encode([View(self.anchor, t) for t in texts])
        vectors = [apply_head(v, bias, self.kept_head) for v, bias in encoded]
        parts = {
            "positive_cosine": mean_cosine(vectors[0], vectors[1]),
            "negative_cosine": mean_cosine(vectors[0], vectors[2]),
        }
        return MethodOutput(self.contrast(vectors), parts)

    def notes(self, columns: Sequence[str]) -> list[str]:
        return super().notes(columns) + head_notes(self.kept_head, self.backbone)

    @property
    def pooling(self) -> PoolingConfig:
        method = self.method
        return replace(
            super().pooling,
            denoise=method.denoise,
            pad_positions=method.pad_positions,
            head=method.head,
        )
