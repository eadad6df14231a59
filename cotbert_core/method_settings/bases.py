"""What the settings of several training methods have in common.

`template_roles` are the templates that a method uses, `needs` the paired texts that its corpus
must have, and `uses` the paired texts that it uses (`cotbert_core.training.batches.COLUMNS`).
"""

from __future__ import annotations

import json
from typing import Any, ClassVar, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from cotbert_core.choices import Denoise as Denoise
from cotbert_core.choices import Pooling

PadPositions = Literal["aligned", "released"]
HeadName = Literal["tanh", "transform"]
DevReading = Literal["inference", "released"]
EmptySentence = Literal["bare", "blank"]
Positive = Literal["dropout", "template", "paired", "neighbour", "rest"]
# The positives that are found in the documents of the corpus.
FROM_DOCUMENTS = ("neighbour", "rest")
# The positives of a method with at most one template.
ONE_TEMPLATE = ("dropout", "paired", *FROM_DOCUMENTS)
# For values of settings the names of the settings that then have no effect.
IdleAt = tuple[tuple[str, Any, tuple[str, ...]], ...]


class Settings(BaseModel):
    """Base of all settings."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        coerce_numbers_to_str=True,  # an encoder may be named 20241127
        validate_default=True,  # a default is checked against the other values that were given
    )

    @model_validator(mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, given: Any) -> Any:
        """Return the values with true and false as texts where a number is expected: pydantic
        refuses such texts, but would take true for 1 and false for 0."""
        if not isinstance(given, dict):
            return given
        kinds = {name: field.annotation for name, field in cls.model_fields.items()}
        numbers = {name for name, k in kinds.items() if {int, float} & {k, *get_args(k)}}
        return {
            name: json.dumps(value) if isinstance(value, bool) and name in numbers else value
            for name, value in given.items()
        }


class AnyMethodSettings(Settings):
    """Base of the settings of every method."""

    roles: ClassVar[tuple[str, ...]] = ()
    encoders: ClassVar[tuple[str, ...]] = ()
    """The settings that name further encoders."""
    idle_at: ClassVar[IdleAt] = ()
    """(setting, its value, the settings without effect at that value), besides the base class's."""

    @property
    def template_roles(self) -> tuple[str, ...]:
        return self.roles

    @property
    def needs(self) -> tuple[str, ...]:
        return ()

    @property
    def uses(self) -> tuple[str, ...]:
        return self.needs

    @property
    def from_documents(self) -> bool:
        """Whether positives are found in the documents of the corpus."""
        return False

    @property
    def needs_dropout(self) -> bool:
        """Whether the views of a sentence differ in dropout alone."""
        return False

    @property
    def idle(self) -> dict[str, str]:
        """The settings that have no effect beside the others, each with the reason."""
        declared = [one for kind in type(self).__mro__ for one in vars(kind).get("idle_at", ())]
        return {
            name: f"method.{setting} is {value if isinstance(value, str) else json.dumps(value)}"
            for setting, value, names in declared
            if getattr(self, setting) == value
            for name in names
        }


class ContrastiveSettings(AnyMethodSettings):
    """Base of the settings of every method with InfoNCE in its loss."""

    temperature: float = Field(0.05, gt=0)
    """The temperature, which divides the cosine."""


class PositiveSettings(ContrastiveSettings):
    """Base of the settings of methods whose positive can be chosen."""

    positives: ClassVar[tuple[str, ...]]
    """The positives that the method supports."""
    idle_at: ClassVar[IdleAt] = tuple(
        ("positive", one, ("rest_length",)) for one in get_args(Positive) if one != "rest"
    )
    positive: Positive
    """The positive of a sentence. dropout: the sentence itself under another dropout mask.
    template: the sentence itself in the positive template. paired: the augmented text of its row.
    neighbour: another sentence of its document, sampled again each epoch. rest: all other sentences
    of its document. The last two need a corpus with documents."""
    rest_length: int = Field(128, ge=1)
    """The maximum number of tokens of a positive that is the rest of a document."""

    @field_validator("positive")
    @classmethod
    def _supported(cls, positive: str) -> str:
        if positive not in cls.positives:
            name = cls.model_fields["name"].default
            raise ValueError(
                f"method {name} has no second template; give one of {', '.join(cls.positives)}"
            )
        return positive

    @property
    def from_documents(self) -> bool:
        return self.positive in FROM_DOCUMENTS

    @property
    def needs_dropout(self) -> bool:
        return self.positive == "dropout"

    @property
    def template_roles(self) -> tuple[str, ...]:
        """The roles with a template: not the positive where the anchor's serves both."""
        same = self.positive == "dropout"
        return tuple(role for role in self.roles if not (same and role == "positive"))

    @property
    def needs(self) -> tuple[str, ...]:
        return ("augmented",) if self.positive == "paired" else ()


class BareSettings(ContrastiveSettings):
    """Base of the settings of contrastive methods that read sentences without a template."""

    readout: Pooling = "cls"


class PromptedSettings(ContrastiveSettings):
    """Base of the settings of methods whose released code is PromptBERT's or derived from it."""

    dev_reading: DevReading = "inference"
    """How a dev check reads vectors: as at inference, or as the released code does, without the
    full stop and, for PromptBERT, denoised."""
    empty_sentence: EmptySentence = "bare"
    """The text of an empty sentence at inference for a byte-level tokenizer (RoBERTa). bare: no
    text. blank: the blank that precedes any other sentence, as in the released code."""


class DenoisedSettings(PromptedSettings):
    """Base of the settings of methods that subtract a template's bias from the mask vector."""

    idle_at: ClassVar[IdleAt] = (("denoise", "none", ("pad_positions", "freeze_bias")),)
    denoise: Denoise = "pad"
    pad_positions: PadPositions = "aligned"
    """The position ids of RoBERTa's bias rows. aligned: those of the filled template. released: as
    in the released code, where `pad` skips the pads and `position` counts from 0 instead of 2."""
    freeze_bias: bool = False
    """Whether the template bias is computed without gradient."""
