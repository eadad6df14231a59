"""The base of contrastive methods without a template, which pool [CLS] or the mean.

Letters: b rows of this worker, D hidden size.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from cotbert_core.encoder.backbone import Backbone
from cotbert_core.encoder.heads import TanhHead, apply_head
from cotbert_core.encoder.pooling_config import PoolingConfig
from cotbert_core.encoder.pooling_files import prompt_of, readable_pooling
from cotbert_core.method_settings.bases import HeadName
from cotbert_core.methods.base import recorded
from cotbert_core.methods.contrastive import Contrastive, View
from cotbert_core.settings import TrainSettings
from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.templates.wrapping import BoundTemplate


class WithoutTemplate(Contrastive):
    """A contrastive method on bare sentences, with a tanh head during training."""

    def __init__(self, backbone: Backbone, settings: TrainSettings) -> None:
        super().__init__(backbone, settings)
        self.readout = self.method.readout
        self.bare = self.bind(None)
        self.head: Any = TanhHead(backbone.model.config)

    def vectors(self, *texts: Ragged, first: BoundTemplate | None = None) -> list[Tensor]:
        """Return the vectors (b, D) after the head for each list of b texts.

        first: the template of the first list; None: that of the others.
        """
        views = [View(self.bare, rows) for rows in texts]
        encoded = self.encode([View(first or self.bare, texts[0]), *views[1:]])
        return [apply_head(raw, None, self.head) for raw, _ in encoded]

    @property
    def pooling(self) -> PoolingConfig:
        kept: HeadName | None = None if self.kept_head is None else "tanh"
        return plain_pooling_config(self.settings, self.readout, kept)


def plain_pooling_config(
    settings: TrainSettings, readout: str, head: HeadName | None = None
) -> PoolingConfig:
    """Return the pooling of an encoder that was trained without a template.

    Corpora are tokenized for templates, so such an encoder keeps the leading blank. It keeps the
    prompts, the maximum length and the unit length of the original encoder, as in
    sentence-transformers, so that scores before and after training are comparable, and so that its
    vectors fit where the original's were compared by inner product.
    """
    own = readable_pooling(settings.encoder)
    return PoolingConfig(
        readout,
        prompt_of(own),
        query=own.get("query"),
        max_length=own.get("max_length"),
        normalize=own.get("normalize", False),
        blank=True,
        head=head,
        method=settings.method.name,
        settings=recorded(settings),
    )
