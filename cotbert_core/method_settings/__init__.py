"""The settings of each training method; `name` selects the method."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from cotbert_core.method_settings.baselines import (
    ArcCseSettings,
    ConSertSettings,
    DclrSettings,
    DiffCseSettings,
    ESimCseSettings,
    MlmSettings,
    PclSettings,
    PromCseSettings,
    RankCseSettings,
    SimCseSettings,
    SncseSettings,
    TsdaeSettings,
)
from cotbert_core.method_settings.bases import AnyMethodSettings
from cotbert_core.method_settings.papers import (
    CotBertSettings,
    DenoSentSettings,
    OptiPromptSettings,
    PromptBertSettings,
    SupervisedPromptBertSettings,
)

METHOD_SETTINGS: dict[str, type[AnyMethodSettings]] = {
    "cot-bert": CotBertSettings,
    "promptbert": PromptBertSettings,
    "promptbert-supervised": SupervisedPromptBertSettings,
    "optiprompt": OptiPromptSettings,
    "denosent": DenoSentSettings,
    "simcse": SimCseSettings,
    "promcse": PromCseSettings,
    "consert": ConSertSettings,
    "esimcse": ESimCseSettings,
    "arccse": ArcCseSettings,
    "dclr": DclrSettings,
    "diffcse": DiffCseSettings,
    "rankcse": RankCseSettings,
    "pcl": PclSettings,
    "sncse": SncseSettings,
    "tsdae": TsdaeSettings,
    "mlm": MlmSettings,
}

MethodSettings = Annotated[
    CotBertSettings
    | PromptBertSettings
    | SupervisedPromptBertSettings
    | OptiPromptSettings
    | DenoSentSettings
    | SimCseSettings
    | PromCseSettings
    | ConSertSettings
    | ESimCseSettings
    | ArcCseSettings
    | DclrSettings
    | DiffCseSettings
    | RankCseSettings
    | PclSettings
    | SncseSettings
    | TsdaeSettings
    | MlmSettings,
    Field(discriminator="name"),
]
