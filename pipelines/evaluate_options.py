"""What `cotbert evaluate` is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cotbert_core.method_settings import Denoise
from cotbert_core.settings import Precision


@dataclass(frozen=True)
class EvaluateOptions:
    """senteval: a SentEval folder; pairs: a file of graded pairs; with neither, the pairs that
    come with this package. template, readout: read the encoder another way than its own; remove to
    denoise: as in FeatureOptions. whiten: text whose vectors' mean and covariance are taken out of
    all vectors, or `tasks` for the sentences that are scored."""

    model: str
    senteval: Path | None = None
    pairs: Path | None = None
    tasks: str | None = None
    allow_missing: bool = False
    template: str | None = None
    readout: str | None = None
    precision: Precision = "auto"
    remove: tuple[str, ...] = ()
    frequent_count: int | None = None
    top_k: int | None = None
    denoise: Denoise | None = None
    whiten: str | None = None
    whiten_dimensions: int | None = None
