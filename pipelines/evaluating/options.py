"""What `cotbert evaluate` is asked for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from cotbert_core.errors import UserError
from cotbert_core.method_settings import Denoise
from cotbert_core.settings import Precision
from pipelines.evaluating.model_specs import OPTIONS, ModelSpec


@dataclass(frozen=True)
class EvaluateOptions:
    """senteval: a SentEval folder; pairs: a file of graded pairs; with neither, the pairs that
    come with this package. template, readout: read the encoder another way than its own; remove to
    denoise: as in FeatureOptions. whiten: text whose vectors' mean and covariance are taken out of
    all vectors, or `tasks` for the sentences that are scored. resamples: of the bootstrap that says
    how far chance moves a score; 0 for none. encoding: of the text files of whiten; None: UTF-8."""

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
    resamples: int = 1000
    encoding: str | None = None

    def of_model(self, text: str) -> EvaluateOptions:
        """The same for another MODEL: a name, NAME,template=T or NAME,readout=R."""
        spec = ModelSpec.parse(text)
        for key in OPTIONS:
            if getattr(spec, key) is not None and getattr(self, key) is not None:
                raise UserError(
                    f"model {text!r} names its {key}, and --{key} is given too: leave one out"
                )
        return replace(
            self,
            model=spec.name,
            template=spec.template if self.template is None else self.template,
            readout=spec.readout if self.readout is None else self.readout,
        )
