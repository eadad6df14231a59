"""The options for what a successful training run keeps besides its model."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.options import shared


@dataclass(frozen=True, kw_only=True)
class KeptFiles:
    """keep_checkpoints: which ones are kept. log_model: whether MLflow gets a copy of model/."""

    keep_checkpoints: shared.KeepCheckpoints = "none"
    log_model: shared.LogModel = False


MODEL_ALONE = KeptFiles()
