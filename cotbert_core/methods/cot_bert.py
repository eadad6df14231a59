"""CoT-BERT: two-stage templates, template denoising, extended InfoNCE (paper, section 3).

With `extended: false` the hard negatives appear only in ConPVP's a(i,j-) terms.
"""

from __future__ import annotations

from cotbert_core.encoder.backbone import Backbone
from cotbert_core.encoder.heads import TanhHead, read_out
from cotbert_core.method_settings import CotBertSettings
from cotbert_core.methods.base import MethodOutput
from cotbert_core.methods.contrastive import Contrastive, View, mean_cosine
from cotbert_core.settings import ROLES, TrainSettings
from cotbert_core.training.batches import Batch


class CotBert(Contrastive):
    """CoT-BERT: anchor, positive and hard negative are three templates around a sentence."""

    def __init__(self, backbone: Backbone, settings: TrainSettings) -> None:
        super().__init__(backbone, settings)
        assert isinstance(settings.method, CotBertSettings)
        self.extended = settings.method.extended
        used = [role for role in ROLES if getattr(settings.templates, role) is not None]
        self.templates = [self.bind(role) for role in used]
        self.head = TanhHead(backbone.model.config)

    def forward(self, batch: Batch) -> MethodOutput:
        views = [View(template, batch.sentences) for template in self.templates]
        vectors = [read_out(v, bias, self.head) for v, bias in self.encode(views)]
        loss = self.contrast(vectors, extended=self.extended)
        return MethodOutput(loss, {"positive_cosine": mean_cosine(*vectors[:2])})
