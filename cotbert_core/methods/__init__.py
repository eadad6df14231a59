"""The training methods: a batch of sentences in, a loss and its named parts out.

A method is one file here, one settings class in `cotbert_core.settings` and one entry in METHODS.
No method knows Ray; across workers it sees the global batch through `cotbert_core.distributed`.
"""

from __future__ import annotations

from cotbert_core.backbone import Backbone
from cotbert_core.methods.base import Method, MethodOutput
from cotbert_core.methods.cot_bert import CotBert
from cotbert_core.settings import TrainSettings

METHODS: dict[str, type[Method]] = {"cot-bert": CotBert}

__all__ = ["METHODS", "Method", "MethodOutput", "build_method"]


def build_method(backbone: Backbone, settings: TrainSettings) -> Method:
    """The method that the settings name, around an encoder."""
    return METHODS[settings.method.name](backbone, settings)
