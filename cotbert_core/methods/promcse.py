"""PromCSE (Jiang et al., Findings of EMNLP 2022): trained prefixes of a frozen encoder.

The objective is SimCSE's. With triples, an energy-based hinge loss is added, which requires the
cosine of a sentence and its entailment to exceed its other cosines by a margin.
"""

from __future__ import annotations

from torch import Tensor

from cotbert_core.encoder.backbone import Backbone
from cotbert_core.encoder.dropout import replace_dropout
from cotbert_core.encoder.prefixes import add_new_prefixes, prefix_length, prefixes_of
from cotbert_core.errors import UserError
from cotbert_core.losses import energy_hinge
from cotbert_core.method_settings.baselines import PromCseSettings
from cotbert_core.methods.simcse import SimCse
from cotbert_core.settings import TrainSettings


class PromCse(SimCse):
    """PromCSE, which trains new or existing prefixes of the encoder, and a head."""

    method: PromCseSettings

    def __init__(self, backbone: Backbone, settings: TrainSettings) -> None:
        super().__init__(backbone, settings)
        model, length = backbone.model, prefix_length(backbone.model)
        if length not in (0, self.method.length):
            raise UserError(
                f"method.length is {self.method.length} and encoder {backbone.name!r} has trained "
                f"prefixes of {length} vectors: set method.length={length}"
            )
        if not length:
            add_new_prefixes(model, backbone.name, self.method.length)
            replace_dropout(model, settings.dropout)
        model.requires_grad_(False)
        for prefix in prefixes_of(model):
            prefix.requires_grad_(True)

    def added_loss(self, anchor: Tensor, columns: list[Tensor], first: int) -> Tensor | float:
        """Return the weighted hinge loss of triples, 0 without hard negatives."""
        if len(columns) < 2 or not self.method.hinge_weight:
            return 0.0
        margin = self.method.hinge_margin
        return self.method.hinge_weight * energy_hinge(anchor, *columns, margin=margin, first=first)
