"""What a training run is: one frozen model, unknown keys refused, every fault told at once.

The flat form is what MLflow logs, what a checkpoint stores and what a sweep samples; `override`
makes settings of it again through the same checks. Every default and every range lives here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar, cast

from pydantic import Field, ValidationError, field_validator, model_validator

from cotbert_core.choices import Attention as Attention
from cotbert_core.choices import Precision as Precision
from cotbert_core.errors import UserError
from cotbert_core.method_settings import (
    METHOD_SETTINGS,
    ContrastiveSettings,
    CotBertSettings,
    DenoisedSettings,
    MethodSettings,
    PromptedSettings,
    Settings,
)
from cotbert_core.templates.template_texts import resolve_template

Schedule = Literal["linear", "constant"]
ROLES = ("anchor", "positive", "negative")


class TemplateSettings(Settings):
    """Templates by name (`cotbert templates`) or as a text with [X] and [MASK].

    A method reads those of its roles; the others must be null.
    """

    anchor: str | None = "cot-bert/anchor"
    """Read at inference too."""
    positive: str | None = "cot-bert/positive"
    negative: str | None = "cot-bert/negative"
    """Hard negative; null leaves the a(i,j-) terms out of the loss."""

    @field_validator(*ROLES)
    @classmethod
    def _known(cls, name: str | None) -> str | None:
        if name is not None:
            resolve_template(name)
        return name


class OptimizerSettings(Settings):
    """AdamW."""

    learning_rate: float = Field(1e-5, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    clip: float = Field(1.0, gt=0)
    """Largest gradient norm."""
    warmup_steps: int = Field(0, ge=0)
    """Steps in which the rate rises linearly from 0, the rate of the first."""
    schedule: Schedule = "linear"
    """After the warm-up: linear to 0 at the last step, or constant."""


class TrainSettings(Settings):
    """One training run."""

    encoder: str = "bert-base-uncased"
    """A folder, a hub name or all-MiniLM-L6-v2."""
    templates: TemplateSettings = TemplateSettings()
    method: MethodSettings = CotBertSettings()
    optimizer: OptimizerSettings = OptimizerSettings()
    batch_size: int = Field(256, ge=2)
    """Sentences in the global batch, over all workers."""
    chunk_size: int | None = Field(None, ge=1)
    """Rows (a sentence under a template) whose activations are kept at once; the backward pass
    computes the others' again, so a large batch takes the memory of a chunk and about a third more
    time, with the same loss and gradient. null: all are kept."""
    max_length: int = Field(32, ge=1)
    """Tokens of a sentence, template not counted."""
    epochs: int = Field(1, ge=1)
    max_steps: int | None = Field(None, ge=1)
    """Ends the run before `epochs` are over, or repeats the corpus until reached."""
    shuffle_rows: int | None = Field(None, ge=1)
    """Sentences shuffled together, about; they are read while the run goes on. null: all of the
    corpus, held in memory, up to 20 million; above that 1 million."""
    eval_every: int = Field(125, ge=1)
    """Steps between dev checks; the best dev Spearman is kept."""
    dev: Literal["sts-b", "sts-b+sick-r"] = "sts-b"
    """What a dev check scores in a SentEval folder; of several the mean (DenoSent)."""
    dropout: float | None = Field(None, ge=0, lt=1)
    """The encoder's dropout rates; null keeps the encoder's own."""
    precision: Precision = "auto"
    """auto: bf16 where the machine has it."""
    attention: Attention = "auto"
    """How rows attend (cotbert_core.encoder.attention); unpadded: without padding, the same numbers
    with another order of dropout."""
    workers: int = Field(1, ge=1)
    min_workers: int | None = Field(None, ge=1)
    """A run that has lost a node for good goes on with as few; null: it waits for a new one."""
    node_seconds: int = Field(180, ge=0)
    """So long a run with min_workers waits for a new node first: one that is replaced is back in
    minutes."""
    gpus_per_worker: int | None = Field(None, ge=0, le=1)
    """1: each worker trains on a GPU. 0: on CPU cores. null: on a GPU where there is one for every
    worker."""
    cpus_per_worker: int | None = Field(None, ge=1)
    """Cores of each worker; null shares out those of the machines evenly."""
    seed: int = Field(0, ge=0)

    @model_validator(mode="after")
    def _consistent(self) -> TrainSettings:
        faults = _template_faults(self.templates, self.method)
        if self.batch_size % self.workers:
            faults.append(
                f"batch_size is {self.batch_size}: it must be a multiple of workers "
                f"({self.workers})"
            )
        if self.chunk_size is not None and not isinstance(self.method, ContrastiveSettings):
            faults.append(
                f"chunk_size is {self.chunk_size}: method {self.method.name} keeps all "
                "activations; set chunk_size=null"
            )
        if self.shuffle_rows is not None and self.shuffle_rows < self.batch_size:
            faults.append(
                f"shuffle_rows is {self.shuffle_rows}: give at least batch_size "
                f"({self.batch_size}), or null"
            )
        if self.min_workers is not None and self.min_workers > self.workers:
            faults.append(
                f"min_workers is {self.min_workers}: give at most workers ({self.workers}), or null"
            )
        if faults:
            raise ValueError("; ".join(faults))
        return self


def _template_faults(templates: TemplateSettings, method: MethodSettings) -> list[str]:
    """The templates that the method lacks or has no use for, and those that do not agree."""
    faults = []
    for role in ROLES:
        name, used = getattr(templates, role), role in method.template_roles
        if used and name is None and role != "negative":
            faults.append(f"templates.{role} is null: method {method.name} reads it; give one")
        elif name is not None and not used:
            faults.append(
                f"templates.{role} is {name!r}: method {method.name} has no use for it; set "
                f"templates.{role}=null"
            )
    if isinstance(method, CotBertSettings) and method.extended and templates.negative is None:
        faults.append(
            "method.extended is true without templates.negative: the a(i+,j-) term needs it; "
            "give one or set method.extended=false"
        )
    stages = {role: resolve_template(name).stages for role, name in templates if name is not None}
    if len(set(stages.values())) > 1:
        told = ", ".join(f"templates.{role} has {count}" for role, count in stages.items())
        faults.append(
            f"{told} masks: all must have as many, since their vectors are compared; give "
            "templates of one kind"
        )
    return faults


S = TypeVar("S", bound=Settings)


def build(kind: type[S], values: Mapping[str, Any]) -> S:
    """Settings from nested values; all faults in one UserError."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise UserError("; ".join(_fault(e) for e in error.errors())) from None


def override(settings: S, changes: Mapping[str, Any]) -> S:
    """Settings with some flat keys (`method.temperature`) replaced, all checks made again.

    `model_fields_set` of the result names the fields that this or an earlier change gave; the
    others have their defaults.
    """
    values = settings.model_dump()
    method = changes.get("method.name", values.get("method", {}).get("name"))
    if method != values.get("method", {}).get("name"):
        # What is set for one method means nothing to another, which starts from its own defaults.
        values["method"] = {}
    for path, value in changes.items():
        *parents, leaf = path.split(".")
        place = values
        for parent in parents:
            place = place.setdefault(parent, {})
            if not isinstance(place, dict):
                raise UserError(f"setting {path!r} is unknown: {parent} holds no further settings")
        place[leaf] = value
    made = build(type(settings), values)
    given = settings.model_fields_set | {path.split(".")[0] for path in changes}
    # private: pydantic documents this argument; the underscore keeps it apart from field names
    return cast(S, made.model_construct(_fields_set=given, **dict(made)))


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
    parts = [str(part) for part in error["loc"]]
    if parts[:1] == ["method"] and len(parts) > 2:
        del parts[1]  # pydantic's tag of the method
    path = ".".join(parts)
    rule = error["msg"].removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        return _unknown_setting(path, error["loc"])
    if error["type"].startswith("union_tag"):
        given = error["input"].get("name") if isinstance(error["input"], Mapping) else None
        return f"method.name is {given!r}: give one of {', '.join(METHOD_SETTINGS)}"
    if not path:
        return str(rule)
    if isinstance(error["input"], Mapping):
        return f"{path}: {rule}"
    return f"{path} is {error['input']!r}: {rule[0].lower()}{rule[1:]}"


def _unknown_setting(path: str, place: tuple[Any, ...]) -> str:
    if place[0] == "method" and len(place) > 2:
        known = ", ".join(n for n in METHOD_SETTINGS[place[1]].model_fields if n != "name")
        reason = (
            "; denoising needs a method that reads a template's mask"
            if place[2] in DenoisedSettings.model_fields.keys() - PromptedSettings.model_fields
            else ""
        )
        return f"setting {path!r} is unknown: method {place[1]} has {known}{reason}"
    return f"setting {path!r} is unknown: see `cotbert recipes NAME` for those there are"
