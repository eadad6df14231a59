"""The settings of a training run: one frozen model that refuses unknown keys and lists all faults.

MLflow logs the flat form, a run folder stores it and a sweep samples it; `override` turns flat
values back into settings with the same checks. Every default and every range is defined here.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeVar, cast

from pydantic import Field, ValidationError, field_validator, model_validator

from cotbert_core.choices import Attention as Attention
from cotbert_core.choices import Precision as Precision
from cotbert_core.errors import UserError, did_you_mean
from cotbert_core.method_settings import METHOD_SETTINGS, MethodSettings
from cotbert_core.method_settings.bases import (
    ContrastiveSettings,
    DenoisedSettings,
    PromptedSettings,
    Settings,
)
from cotbert_core.method_settings.papers import CotBertSettings
from cotbert_core.templates.template_texts import resolve_template

Schedule = Literal["linear", "constant"]
ROLES = ("anchor", "positive", "negative")
# Former name of a setting -> its name now. Former names still work in settings files, in --set and
# in the settings.json of an earlier run.
FORMER_NAMES = {"chunk_size": "mini_batch_size", "shuffle_rows": "shuffle_buffer_rows"}


class TemplateSettings(Settings):
    """The templates, each a name (`cotbert templates`) or a text with [X] and [MASK].

    A method reads the templates of its roles; the others must be null.
    """

    anchor: str | None = "cot-bert/anchor"
    """The template that is also used at inference."""
    positive: str | None = "cot-bert/positive"
    negative: str | None = "cot-bert/negative"
    """The template of the hard negative; null leaves the a(i,j-) terms out of the loss."""

    @field_validator(*ROLES)
    @classmethod
    def _known(cls, name: str | None) -> str | None:
        if name is not None:
            resolve_template(name)
        return name


class OptimizerSettings(Settings):
    """The settings of AdamW and its learning-rate schedule."""

    learning_rate: float = Field(1e-5, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    """The decay of all trained weights, also of biases and layer norms."""
    clip: float = Field(1.0, gt=0)
    """The gradient norm above which gradients are scaled down."""
    warmup_steps: int = Field(0, ge=0)
    """The number of steps in which the learning rate rises linearly; the first step has rate 0."""
    schedule: Schedule = "linear"
    """The schedule after the warm-up: linear decay to 0 at the last step, or constant."""


class TrainSettings(Settings):
    """The settings of one training run."""

    encoder: str = "bert-base-uncased"
    """The encoder to start from: a folder, a hub name or all-MiniLM-L6-v2."""
    templates: TemplateSettings = TemplateSettings()
    method: MethodSettings = CotBertSettings()
    optimizer: OptimizerSettings = OptimizerSettings()
    batch_size: int = Field(256, ge=2)
    """The number of sentences in the global batch, over all workers."""
    mini_batch_size: int | None = Field(None, ge=1)
    """The number of rows (a row is a sentence under a template) whose activations are in memory at
    once. The backward pass computes them again, so a large batch takes the memory of a mini-batch
    and about a third more time, with the same loss and gradient. null: keep all activations."""
    max_length: int = Field(32, ge=1)
    """The maximum number of tokens of a sentence, without the template."""
    epochs: int = Field(1, ge=1)
    max_steps: int | None = Field(None, ge=1)
    """The number of steps, whatever `epochs` says: the run stops early or repeats the corpus."""
    shuffle_buffer_rows: int | None = Field(None, ge=1)
    """About how many sentences are shuffled together while the corpus is streamed from disk. null:
    the whole corpus in memory, up to 20 million sentences; above that 1 million at a time."""
    eval_every: int = Field(125, ge=1)
    """The number of steps between dev checks; the model with the best dev score is saved."""
    dev: Literal["sts-b", "sts-b+sick-r", "own"] = "sts-b"
    """The dev sets of a SentEval folder; the score of several is their mean (DenoSent). own: the
    corpus's held-out documents (`cotbert prepare --hold-out`); graded pairs that are given too are
    scored beside them and choose nothing."""
    dropout: float | None = Field(None, ge=0, lt=1)
    """The encoder's dropout rates; null keeps the encoder's own rates."""
    precision: Precision = "auto"
    """The number format of matrix products; auto: bf16 where the machine computes it faster, else
    fp32."""
    attention: Attention = "auto"
    """The attention implementation (cotbert_core.encoder.attention). unpadded: rows without
    padding, which gives the same numbers but samples dropout in another order."""
    workers: int = Field(1, ge=1)
    min_workers: int | None = Field(None, ge=1)
    """The number of workers with which a run may continue after it has lost a node; null: the run
    waits for a new node."""
    node_seconds: int = Field(180, ge=0)
    """The seconds for which a run with min_workers waits for a new node before it continues without
    one: a node that is replaced is back in minutes."""
    gpus_per_worker: int | None = Field(None, ge=0, le=1)
    """1: each worker trains on a GPU. 0: on CPU cores. null: on a GPU if there is one for every
    worker."""
    cpus_per_worker: int | None = Field(None, ge=1)
    """The number of CPU cores of each worker; null divides the machines' cores evenly."""
    seed: int = Field(0, ge=0, lt=2**63)

    @property
    def encoders(self) -> dict[str, str]:
        """The encoders that the run reads, by the setting that names each."""
        names = {f"method.{name}": getattr(self.method, name) for name in self.method.encoders}
        return {"encoder": self.encoder} | {key: name for key, name in names.items() if name}

    @property
    def idle(self) -> dict[str, str]:
        """The flat settings that have no effect beside the others, each with the reason."""
        found = {f"method.{name}": reason for name, reason in self.method.idle.items()}
        if self.max_steps is not None:
            found["epochs"] = f"max_steps is {self.max_steps:,}"
        if self.min_workers is None:
            found["node_seconds"] = "min_workers is null"
        if self.method.name == "mlm":
            found["dev"] = "pretraining is scored on rows of its own"
            found["max_length"] = "rows are cut at method.packed_length"
        return found

    @model_validator(mode="after")
    def _consistent(self) -> TrainSettings:
        faults = _template_faults(self.templates, self.method)
        if self.batch_size % self.workers:
            faults.append(
                f"batch_size is {self.batch_size}: it must be a multiple of workers "
                f"({self.workers})"
            )
        if self.mini_batch_size is not None and not isinstance(self.method, ContrastiveSettings):
            faults.append(
                f"mini_batch_size is {self.mini_batch_size}: method {self.method.name} keeps all "
                "activations; set mini_batch_size=null"
            )
        if self.shuffle_buffer_rows is not None and self.shuffle_buffer_rows < self.batch_size:
            faults.append(
                f"shuffle_buffer_rows is {self.shuffle_buffer_rows}: give at least batch_size "
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
    """Return an error message for each template that is missing, unused or inconsistent."""
    faults = []
    for role in ROLES:
        name, used = getattr(templates, role), role in method.template_roles
        if used and name is None and role != "negative":
            faults.append(
                f"templates.{role} is null: method {method.name} needs this template; give one"
            )
        elif name is not None and not used:
            faults.append(
                f"templates.{role} is {name!r}: method {method.name} does not use it; set "
                f"templates.{role}=null"
            )
        elif name is not None and not resolve_template(name).stages:
            faults.append(
                f"templates.{role} is {name!r}: method {method.name} reads the sentence vector at "
                "the template's [MASK]; add one to the text"
            )
    if isinstance(method, CotBertSettings) and method.extended and templates.negative is None:
        faults.append(
            "method.extended is true without templates.negative: the a(i+,j-) term needs it; "
            "give one or set method.extended=false"
        )
    stages = {role: resolve_template(name).stages for role, name in templates if name is not None}
    if len(set(stages.values())) > 1:
        counts = ", ".join(f"templates.{role} has {count}" for role, count in stages.items())
        faults.append(
            f"{counts} masks: all templates must have the same number of masks, because their "
            "vectors are compared; give templates of one kind"
        )
    return faults


S = TypeVar("S", bound=Settings)


def build(kind: type[S], values: Mapping[str, Any]) -> S:
    """Return settings made from nested values; the UserError lists all faults."""
    try:
        return kind.model_validate(_renamed(values))
    except ValidationError as error:
        raise UserError("; ".join(_fault(e) for e in error.errors())) from None


def override(settings: S, changes: Mapping[str, Any]) -> S:
    """Return settings in which some flat keys (`method.temperature`) have new values.

    All checks are repeated. `model_fields_set` of the result names the fields that this or an
    earlier change gave; the others have their defaults.
    """
    values, changes = settings.model_dump(), _renamed(changes)
    method = changes.get("method.name", values.get("method", {}).get("name"))
    if method != values.get("method", {}).get("name"):
        # The settings of one method mean nothing to another, which starts from its own defaults.
        values["method"] = {}
    for path, value in changes.items():
        *parents, leaf = path.split(".")
        place = values
        for parent in parents:
            place = place.setdefault(parent, {})
            if not isinstance(place, dict):
                raise UserError(f"setting {path!r} is unknown: {parent} has no settings below it")
        place[leaf] = value
    made = build(type(settings), values)
    given = settings.model_fields_set | {path.split(".")[0] for path in changes}
    # private: pydantic documents this argument; the underscore keeps it apart from field names
    return cast(S, made.model_construct(_fields_set=given, **dict(made)))


def current_name(path: str) -> str:
    """Return the current name of a flat setting, which may have a former name or a prefix."""
    parents, dot, name = path.rpartition(".")
    return parents + dot + FORMER_NAMES.get(name, name)


def rename_notes(paths: Iterable[str]) -> list[str]:
    """Return a sentence for each former name among flat settings, to be shown as a warning."""
    former = [path for path in paths if current_name(path) != path]
    return [f"setting {path!r} is now called {current_name(path)!r}" for path in former]


def with_current_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return flat settings under their current names; UserError for one under both names."""
    for path in values:
        name = current_name(path)
        if name != path and name in values:
            raise UserError(
                f"setting {path!r} is the former name of {name!r} and both are given: give {name!r}"
            )
    return {current_name(path): value for path, value in values.items()}


def _renamed(values: Mapping[str, Any]) -> dict[str, Any]:
    for note in rename_notes(values):
        warnings.warn(note, FutureWarning, stacklevel=3)
    return with_current_names(values)


def flatten(settings: Settings) -> dict[str, Any]:
    """Return settings as a flat dict with dotted keys."""
    return flatten_values(settings.model_dump())


def flatten_values(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested values as a flat dict: {"a": {"b": 1}} becomes {"a.b": 1}.

    Raises UserError for {"a": {"b": 1}, "a.b": 2}.
    """
    flat: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        more = flatten_values(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
        if twice := flat.keys() & more:
            raise UserError(
                f"setting {min(twice)!r} is given twice, nested and as a dotted name; give it once"
            )
        flat |= more
    return flat


def _fault(error: Any) -> str:
    """Return a validation error of pydantic as one sentence: setting, value, rule."""
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
    if error["type"] in ("model_type", "model_attributes_type"):
        one = {"method": "name", "optimizer": "learning_rate", "templates": "anchor"}[path]
        rule = f"it is a group of settings; give one of them, such as {path}.{one}"
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
    meant = did_you_mean(path, flatten(TrainSettings()))
    return f"setting {path!r} is unknown: `cotbert recipes NAME` lists the settings{meant}"
