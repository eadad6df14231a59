"""What a training run is: one frozen model, unknown keys refused, every fault told at once.

The flat form is what MLflow logs, what a checkpoint stores and what a sweep samples; `override`
makes settings of it again through the same checks. Every default and every range lives here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from cotbert_core.errors import UserError
from cotbert_core.templates import resolve_template

Denoise = Literal["none", "position", "pad"]
PadPositions = Literal["aligned", "released"]
Precision = Literal["auto", "bf16", "fp32"]
Schedule = Literal["linear", "constant"]


class Settings(BaseModel):
    """Base of all settings."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class TemplateSettings(Settings):
    """Templates by name (`cotbert templates`) or as a text with [X] and [MASK]."""

    anchor: str = "cot-bert/anchor"
    """Read at inference too."""
    positive: str = "cot-bert/positive"
    negative: str | None = "cot-bert/negative"
    """Hard negative; null leaves the a(i,j-) terms out of the loss."""

    @field_validator("anchor", "positive", "negative")
    @classmethod
    def _known(cls, name: str | None) -> str | None:
        if name is not None:
            resolve_template(name)
        return name


class CotBertSettings(Settings):
    """CoT-BERT's objective (paper, section 3)."""

    name: Literal["cot-bert"] = "cot-bert"
    temperature: float = Field(0.05, gt=0)
    """Divides the cosine."""
    denoise: Denoise = "pad"
    pad_positions: PadPositions = "aligned"
    """Where the tokens after the pads sit in RoBERTa: as in the filled template, or as released."""
    extended: bool = True
    """Whether the a(i+,j-) term is in the loss (Table 4)."""
    freeze_bias: bool = False
    """Whether the template bias is taken without gradient."""


class OptimizerSettings(Settings):
    """AdamW."""

    learning_rate: float = Field(1e-5, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    clip: float = Field(1.0, gt=0)
    """Largest gradient norm."""
    warmup_steps: int = Field(0, ge=0)
    schedule: Schedule = "linear"
    """After the warm-up: linear to 0 at the last step, or constant."""


class TrainSettings(Settings):
    """One training run."""

    encoder: str = "bert-base-uncased"
    """A folder, a hub name or all-MiniLM-L6-v2."""
    templates: TemplateSettings = TemplateSettings()
    method: CotBertSettings = CotBertSettings()
    optimizer: OptimizerSettings = OptimizerSettings()
    batch_size: int = Field(256, ge=2)
    """Sentences in the global batch, over all workers."""
    max_length: int = Field(32, ge=1)
    """Tokens of a sentence, template not counted."""
    epochs: int = Field(1, ge=1)
    max_steps: int | None = Field(None, ge=1)
    """Ends the run before `epochs` are over, or repeats the corpus until reached."""
    eval_every: int = Field(125, ge=1)
    """Steps between dev checks; the best dev Spearman is kept."""
    dropout: float | None = Field(None, ge=0, lt=1)
    """The encoder's dropout rates; null keeps the encoder's own."""
    precision: Precision = "auto"
    """auto: bf16 where the machine has it."""
    workers: int = Field(1, ge=1)
    cpus_per_worker: int | None = Field(None, ge=1)
    """Cores of each worker; null shares out those of the machines evenly."""
    seed: int = Field(0, ge=0)

    @model_validator(mode="after")
    def _consistent(self) -> TrainSettings:
        faults = []
        if self.batch_size % self.workers:
            faults.append(
                f"batch_size is {self.batch_size}: it must be a multiple of workers "
                f"({self.workers})"
            )
        if self.method.extended and self.templates.negative is None:
            faults.append(
                "method.extended is true without templates.negative: the a(i+,j-) term needs it; "
                "give one or set method.extended=false"
            )
        if faults:
            raise ValueError("; ".join(faults))
        return self


S = TypeVar("S", bound=Settings)


def build(kind: type[S], values: Mapping[str, Any]) -> S:
    """Settings from nested values; all faults in one UserError."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise UserError("; ".join(_fault(e) for e in error.errors())) from None


def override(settings: S, changes: Mapping[str, Any]) -> S:
    """Settings with some flat keys (`method.temperature`) replaced, all checks made again."""
    values = settings.model_dump()
    for path, value in changes.items():
        *parents, leaf = path.split(".")
        place = values
        for parent in parents:
            place = place.setdefault(parent, {})
            if not isinstance(place, dict):
                raise UserError(f"setting {path!r} is unknown: {parent} holds no further settings")
        place[leaf] = value
    return build(type(settings), values)


def flatten(settings: Settings) -> dict[str, Any]:
    """Settings as a flat dict with dotted keys."""
    return flatten_values(settings.model_dump())


def flatten_values(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} -> {"a.b": 1}."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= flatten_values(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _fault(error: Any) -> str:
    """One validation fault as: what, the value given, the rule."""
    path = ".".join(str(part) for part in error["loc"])
    rule = error["msg"].removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        return f"setting {path!r} is unknown: see `cotbert recipes NAME` for those there are"
    if not path:
        return str(rule)
    if isinstance(error["input"], Mapping):
        return f"{path}: {rule}"
    return f"{path} is {error['input']!r}: {rule[0].lower()}{rule[1:]}"
