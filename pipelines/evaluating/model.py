"""A model that has been scored, and which published ones it may be put beside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cotbert_core.encoder.backbone import Backbone
from pipelines.evaluating.published import BERT, ROBERTA
from pipelines.evaluating.readout_options import OpenReadout
from pipelines.evaluating.scoring import Scored

# Of transformers' configurations: 12 layers of 768 are what the papers call base.
_BASE = {("bert", 768, 12): BERT, ("roberta", 768, 12): ROBERTA}


@dataclass(frozen=True)
class Model:
    """result: as in its JSON. backbone: as the papers name it, None for one that is in none of
    them. method: what trained it, as in the settings, None if that is not known."""

    label: str
    result: dict[str, Any]
    scored: Scored
    backbone: str | None
    method: str | None

    @classmethod
    def of(cls, label: str, result: dict[str, Any], scored: Scored, readout: OpenReadout) -> Model:
        return cls(label, result, scored, published_backbone(readout.backbone), readout.method)


def published_backbone(backbone: Backbone) -> str | None:
    """BERT-base or RoBERTa-base by its configuration, if it is one of them."""
    config = backbone.model.config
    size = (config.hidden_size, config.num_hidden_layers)
    return _BASE.get((str(config.model_type), *size))
