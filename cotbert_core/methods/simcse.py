"""SimCSE (Gao et al., 2021): no template; the two views of a sentence differ only in dropout.

Or the positive is a paired text or one of the same document. With `triples` the positive is the
entailment and the contradiction is a hard negative.
"""

from __future__ import annotations

from cotbert_core.encoder.backbone import Backbone
from cotbert_core.encoder.heads import TanhHead, apply_head
from cotbert_core.encoder.pooling_config import PoolingConfig, readable_pooling
from cotbert_core.method_settings import HeadName, SimCseSettings
from cotbert_core.methods.base import MethodOutput
from cotbert_core.methods.contrastive import Contrastive, View, mean_cosine
from cotbert_core.settings import TrainSettings, flatten
from cotbert_core.training.batches import Batch


class SimCse(Contrastive):
    """SimCSE on a sentence and its positive, or (sentence, entailment, contradiction) triples."""

    def __init__(self, backbone: Backbone, settings: TrainSettings) -> None:
        super().__init__(backbone, settings)
        assert isinstance(settings.method, SimCseSettings)
        self.method = settings.method
        self.readout = self.method.readout
        self.bare = self.bind(None)
        self.head = TanhHead(backbone.model.config)
        if self.method.keep_head:
            self.kept_head = self.head

    def forward(self, batch: Batch) -> MethodOutput:
        if self.method.triples:
            assert batch.augmented is not None
            assert batch.negative is not None
            texts = [batch.sentences, batch.augmented, batch.negative]
        else:
            texts = [batch.sentences, self.positive_texts(batch)]
        encoded = self.encode([View(self.bare, t) for t in texts])
        vectors = [apply_head(v, None, self.head) for v, _ in encoded]
        parts = {"positive_cosine": mean_cosine(*vectors[:2])}
        return MethodOutput(self.contrast(vectors, documents=batch.documents), parts)

    @property
    def pooling(self) -> PoolingConfig:
        kept: HeadName | None = "tanh" if self.method.keep_head else None
        return plain_pooling_config(self.settings, self.method.readout, kept)


def plain_pooling_config(
    settings: TrainSettings, readout: str, head: HeadName | None = None
) -> PoolingConfig:
    """Return the pooling of an encoder that was trained without a template.

    Corpora are tokenized for templates, so such an encoder keeps the leading blank. It reads as
    many tokens as the encoder that it was made from, as in sentence-transformers: a score before
    and one after differ by the training alone.
    """
    return PoolingConfig(
        readout,
        max_length=readable_pooling(settings.encoder).get("max_length"),
        blank=True,
        head=head,
        method=settings.method.name,
        settings=flatten(settings),
    )
