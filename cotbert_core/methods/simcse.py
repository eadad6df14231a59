"""SimCSE (Gao et al., 2021): no template; the two views of a sentence differ only in dropout.

Optionally the positive is a paired text or another text of the document. With `triples` it is the
entailment, and the contradiction is a hard negative.
"""

from __future__ import annotations

from cotbert_core.encoder.backbone import Backbone
from cotbert_core.method_settings.baselines import TripleSettings
from cotbert_core.methods.base import MethodOutput
from cotbert_core.methods.contrastive import mean_cosine
from cotbert_core.methods.without_template import WithoutTemplate
from cotbert_core.settings import TrainSettings
from cotbert_core.training.batches import Batch


class SimCse(WithoutTemplate):
    """SimCSE on a sentence and its positive, or (sentence, entailment, contradiction) triples."""

    method: TripleSettings

    def __init__(self, backbone: Backbone, settings: TrainSettings) -> None:
        super().__init__(backbone, settings)
        self.queries = self.bind_queries(self.bare)
        if self.method.keep_head:
            self.kept_head = self.head

    def forward(self, batch: Batch) -> MethodOutput:
        if self.method.triples:
            assert batch.augmented is not None
            assert batch.negative is not None
            vectors = self.vectors(batch.sentences, batch.augmented, batch.negative)
        else:
            others = self.positive_texts(batch)
            vectors = self.vectors(batch.sentences, others, first=self.queries)
        parts = {"positive_cosine": mean_cosine(*vectors[:2])}
        return MethodOutput(self.contrast(vectors, documents=batch.documents), parts)
