"""The settings of each training method; `name` selects the method."""

from __future__ import annotations

from typing import Annotated, get_args

from pydantic import Field

from cotbert_core.method_settings import baselines, papers
from cotbert_core.method_settings.bases import AnyMethodSettings

MethodSettings = Annotated[
    papers.CotBertSettings
    | papers.PromptBertSettings
    | papers.SupervisedPromptBertSettings
    | papers.OptiPromptSettings
    | papers.DenoSentSettings
    | baselines.SimCseSettings
    | baselines.PromCseSettings
    | baselines.ConSertSettings
    | baselines.ESimCseSettings
    | baselines.ArcCseSettings
    | baselines.DclrSettings
    | baselines.DiffCseSettings
    | baselines.RankCseSettings
    | baselines.PclSettings
    | baselines.SncseSettings
    | baselines.TsdaeSettings
    | baselines.MlmSettings,
    Field(discriminator="name"),
]
METHOD_SETTINGS: dict[str, type[AnyMethodSettings]] = {
    kind.model_fields["name"].default: kind for kind in get_args(get_args(MethodSettings)[0])
}
