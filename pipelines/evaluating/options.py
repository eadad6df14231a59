"""The options of `cotbert evaluate`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from cotbert_core.errors import UserError
from cotbert_core.method_settings import Denoise
from cotbert_core.settings import Precision
from pipelines.evaluating.model_specs import OPTIONS, ModelSpec


@dataclass(frozen=True)
class EvaluateOptions:
    """The model to evaluate, the tasks and the readout.

    senteval: a SentEval folder. pairs: a file of graded pairs; without both, the pairs of this
    package are used. tasks: names or groups, separated by commas. template, readout: None for the
    encoder's own. remove, frequent_count, top_k, denoise: as in FeatureOptions. whiten: text whose
    vectors' mean and covariance are removed from all vectors, or `tasks` for the scored sentences.
    resamples: number of bootstrap resamples for the intervals of scores; 0 for none. encoding: that
    of the text files of whiten; None for UTF-8.
    """

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
        """Return the same options for another MODEL: NAME, NAME,template=T or NAME,readout=R."""
        spec = ModelSpec.parse(text)
        for key in OPTIONS:
            if getattr(spec, key) is not None and getattr(self, key) is not None:
                raise UserError(
                    f"model {text!r} names its {key}, and --{key} is given too: give only one"
                )
        return replace(
            self,
            model=spec.name,
            template=spec.template if self.template is None else self.template,
            readout=spec.readout if self.readout is None else self.readout,
        )
