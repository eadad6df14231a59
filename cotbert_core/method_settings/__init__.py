"""The settings of each training method; `name` selects the method."""

from __future__ import annotations

from typing import Annotated, get_args

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
METHOD_SETTINGS: dict[str, type[AnyMethodSettings]] = {
    kind.model_fields["name"].default: kind for kind in get_args(get_args(MethodSettings)[0])
}
