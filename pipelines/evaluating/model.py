"""A scored model, and the papers' name of its backbone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cotbert_core.encoder.backbone import Backbone
from pipelines.evaluating.published import BERT, ROBERTA
from pipelines.evaluating.readout_options import OpenReadout
from pipelines.evaluating.scoring import Scored

# (model type, hidden size, layers) of the encoders that the papers call base.
_BASE = {("bert", 768, 12): BERT, ("roberta", 768, 12): ROBERTA}


@dataclass(frozen=True)
class Model:
    """A scored model.

    result: as in the JSON file. backbone: its name in the papers, None if it is not in them.
    method: name of the training method in the settings, None if unknown.
    """

    label: str
    result: dict[str, Any]
    scored: Scored
    backbone: str | None
    method: str | None

    @classmethod
    def of(cls, label: str, result: dict[str, Any], scored: Scored, readout: OpenReadout) -> Model:
        return cls(label, result, scored, published_backbone(readout.backbone), readout.method)


def published_backbone(backbone: Backbone) -> str | None:
    """Return BERT-base or RoBERTa-base if the configuration is that of one of them."""
    config = backbone.model.config
    size = (config.hidden_size, config.num_hidden_layers)
    return _BASE.get((str(config.model_type), *size))
