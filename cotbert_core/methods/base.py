"""The base class of every training method."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, nn

from cotbert_core.encoder.backbone import Backbone
from cotbert_core.encoder.heads import Head
from cotbert_core.encoder.pooling_config import PoolingConfig
from cotbert_core.encoder.pooling_files import readable_pooling
from cotbert_core.errors import UserError
from cotbert_core.method_settings.bases import PromptedSettings
from cotbert_core.saving.lineage import BASE_MODEL, base_model, first_encoder, published_encoder
from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.settings import TrainSettings, flatten
from cotbert_core.templates.template_texts import Template, resolve_template
from cotbert_core.training.batches import Batch
from cotbert_core.training.flops import Work


def recorded(settings: TrainSettings) -> dict[str, Any]:
    """Return settings, flat, for a model folder, which is published: encoders that only helped in
    the training, such as teachers, lose this machine's paths, and an encoder that was trained
    before is followed by the one from which its first training began."""
    first = first_encoder(settings.encoder)
    origin = {BASE_MODEL: first} if first != settings.encoder and base_model(first) else {}
    helpers = {k: published_encoder(n) for k, n in settings.encoders.items() if k != "encoder"}
    return flatten(settings) | helpers | origin


@dataclass
class MethodOutput:
    """The result of a forward pass.

    loss: scalar, whose mean over the workers is the loss of the global batch. parts: named numbers
    to log in addition to the loss, kept without gradient.
    """

    loss: Tensor
    parts: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.parts = {name: part.detach() for name, part in self.parts.items()}


class Method(nn.Module):
    """An encoder with the layers that are trained with it.

    `encoder` is saved, and so is `kept_head` in methods that keep a layer at inference; everything
    else is dropped after training. Raises UserError for settings that this encoder does not
    support.
    """

    method: Any
    """The settings of the method; each class names their type."""

    def __init__(self, backbone: Backbone, settings: TrainSettings) -> None:
        super().__init__()
        self.backbone = backbone
        self.encoder = backbone.model
        self.settings = settings
        self.method = settings.method
        self.kept_head: Head | None = None
        self.step = 0
        """The number of the step, set by the caller, for per-step random samples."""
        self.work = Work()
        """The work of this worker's forward passes since the caller last reset it."""

    @abstractmethod
    def forward(self, batch: Batch) -> MethodOutput:
        """Return loss and parts for this worker's b rows."""

    def notes(self, columns: Sequence[str]) -> list[str]:
        """Return notes for the user about training on these columns of paired texts."""
        unused = [name for name in columns if name not in self.settings.method.uses]
        if not unused:
            return []
        method = self.settings.method.name
        return [f"method {method} does not use the corpus's {' and '.join(unused)} texts"]

    def require_mask(self) -> int:
        """Return the id of the mask token; UserError for an encoder without one."""
        tokenizer = self.backbone.tokenizer.hf
        if tokenizer.mask_token_id is None:
            raise UserError(
                f"encoder {self.backbone.name!r} has no mask token, which method "
                f"{self.method.name} needs: train a masked language model such as bert-base-uncased"
            )
        return int(tokenizer.mask_token_id)

    @property
    def pooling(self) -> PoolingConfig:
        """The pooling of the trained encoder: by default the anchor template's last mask.

        It keeps the maximum length and the unit length of the original encoder, as
        `plain_pooling_config` does.
        """
        method, own = self.settings.method, readable_pooling(self.settings.encoder)
        return PoolingConfig(
            "mask",
            self.template("anchor").at_inference,
            max_length=own.get("max_length"),
            normalize=own.get("normalize", False),
            full_stop=True,
            empty_blank=isinstance(method, PromptedSettings) and method.empty_sentence == "blank",
            method=method.name,
            settings=recorded(self.settings),
        )

    @property
    def dev_pooling(self) -> PoolingConfig:
        """The pooling in dev checks: as at inference, unless `method.dev_reading` is released."""
        method = self.settings.method
        if isinstance(method, PromptedSettings) and method.dev_reading == "released":
            return replace(self.pooling, full_stop=False)
        return self.pooling

    @property
    def finished(self) -> Backbone:
        """The encoder in the form in which it is saved."""
        return self.backbone

    @property
    def sentence_encoder(self) -> SentenceEncoder:
        """The encoder for inference, sharing this method's weights."""
        return SentenceEncoder(self.backbone, self.pooling, self.kept_head)

    @property
    def dev_encoder(self) -> SentenceEncoder:
        """The encoder for dev checks, sharing this method's weights."""
        return SentenceEncoder(self.backbone, self.dev_pooling, self.kept_head)

    def template(self, role: str) -> Template:
        """Return the template of a role, which the settings must have."""
        name = getattr(self.settings.templates, role)
        assert name is not None, role
        return resolve_template(name)
