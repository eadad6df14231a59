"""What every training method is."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field

from torch import Tensor, nn

from cotbert_core.backbone import Backbone
from cotbert_core.ragged import Ragged
from cotbert_core.settings import TrainSettings


@dataclass
class MethodOutput:
    """loss: scalar mean over this worker's rows; parts: named numbers to show beside it."""

    loss: Tensor
    parts: dict[str, Tensor] = field(default_factory=dict)


class Method(nn.Module):
    """An encoder with what is trained beside it.

    `encoder` is the part that is saved; everything else is a training head, dropped afterwards.
    """

    def __init__(self, backbone: Backbone, settings: TrainSettings) -> None:
        super().__init__()
        self.backbone = backbone
        self.encoder = backbone.model
        self.settings = settings

    @abstractmethod
    def forward(self, sentences: Ragged) -> MethodOutput:
        """b sentences (token ids without special tokens) of this worker -> loss and parts."""
