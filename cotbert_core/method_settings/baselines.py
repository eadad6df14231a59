"""The settings of the methods beside the three papers' own."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from cotbert_core.choices import Pooling
from cotbert_core.method_settings.bases import (
    ONE_TEMPLATE,
    AnyMethodSettings,
    BareSettings,
    ContrastiveSettings,
    Positive,
    PositiveSettings,
)

# PCL's changes of a sentence's tokens, each of which makes a positive.
AUGMENTATIONS = ("shuffle", "invert", "delete", "repeat")


class TripleSettings(BareSettings, PositiveSettings):
    """Base of the settings of methods on two dropout masks of a sentence, or on triples."""

    positives = ONE_TEMPLATE
    positive: Positive = "dropout"
    triples: bool = False
    """Whether to train on (sentence, entailment, contradiction) triples instead of dropout."""
    keep_head: bool = False
    """Whether the dense and tanh head is kept at inference, as in supervised SimCSE."""

    @field_validator("triples")
    @classmethod
    def _only_positive(cls, triples: bool, info: ValidationInfo) -> bool:
        positive = info.data.get("positive", "dropout")
        if triples and positive != "dropout":
            raise ValueError(
                "the entailment of a triple is its positive; set method.positive=dropout instead "
                f"of {positive!r}, or method.triples=false"
            )
        return triples

    @property
    def needs(self) -> tuple[str, ...]:
        return ("augmented", "negative") if self.triples else super().needs

    @property
    def needs_dropout(self) -> bool:
        return super().needs_dropout and not self.triples


class SimCseSettings(TripleSettings):
    """The settings of SimCSE (Gao et al., 2021)."""

    name: Literal["simcse"] = "simcse"


class PromCseSettings(TripleSettings):
    """The settings of PromCSE (Jiang et al., 2022): SimCSE's, for prefixes of a frozen encoder."""

    idle_at = (
        ("triples", False, ("hinge_weight", "hinge_margin")),
        ("hinge_weight", 0, ("hinge_margin",)),
    )
    name: Literal["promcse"] = "promcse"
    length: int = Field(16, ge=1)
    """The number of trained keys and values to which the tokens of each layer attend too."""
    hinge_weight: float = Field(10.0, ge=0)
    """The weight of the energy-based hinge loss on triples."""
    hinge_margin: float = Field(0.2, ge=0)
    """The margin of the energy-based hinge loss, a difference of two cosines."""


class TwoMaskSettings(BareSettings):
    """Base of the settings of methods whose two views are a sentence under two dropout masks."""

    @property
    def needs_dropout(self) -> bool:
        return True


class ESimCseSettings(BareSettings):
    """The settings of ESimCSE (Wu et al., 2022): repeated tokens and a queue of negatives."""

    idle_at = (("queue", 0, ("momentum",)),)
    name: Literal["esimcse"] = "esimcse"
    repetition: float = Field(0.32, ge=0, le=1)
    """The largest share of its tokens that a positive repeats; a share below two tokens counts as
    two."""
    queue: float = Field(2.5, ge=0)
    """The number of earlier sentences that are negatives, in batches; 0: none."""
    momentum: float = Field(0.995, ge=0, lt=1)
    """The share of its weights that the encoder of the queue keeps in each step."""


class ConSertSettings(BareSettings):
    """The settings of ConSERT (Yan et al., 2021): tokens out of order against fewer features."""

    name: Literal["consert"] = "consert"
    temperature: float = Field(0.1, gt=0)
    """The temperature, which divides the cosine."""
    readout: Pooling = "mean"
    shuffle: bool = True
    """Whether the tokens of the first view change places."""
    cutoff: float = Field(0.2, ge=0, lt=1)
    """The share of the features that is erased from the embeddings of the second view."""


class ArcCseSettings(TwoMaskSettings):
    """The settings of ArcCSE (Zhang et al., 2022): an angular margin, and triplets of one text."""

    idle_at = (("triplet_weight", 0, ("less_masked", "more_masked", "triplet_margin")),)
    name: Literal["arccse"] = "arccse"
    margin: float = Field(10.0, ge=0, lt=90)
    """The angle in degrees by which the positive has to be nearer."""
    less_masked: float = Field(0.2, gt=0, lt=1)
    """The share of a sentence's words, all in a row, that is masked in the text that has to be
    closer to it."""
    more_masked: float = Field(0.4, gt=0, le=1)
    """The share of its words that is masked in the other text."""
    triplet_weight: float = Field(0.1, ge=0)
    """The weight of the loss on the order of the two; 0: no text is masked."""
    triplet_margin: float = Field(0.0, ge=0)
    """The difference by which the cosine of the closer text has to be larger."""

    @field_validator("more_masked")
    @classmethod
    def _more(cls, share: float, info: ValidationInfo) -> float:
        less = info.data.get("less_masked", 0.0)
        if share <= less:
            raise ValueError(f"give a larger share than method.less_masked ({less})")
        return share


class DclrSettings(TwoMaskSettings):
    """The settings of DCLR (Zhou et al., 2022): noise as negatives, without false negatives."""

    encoders: ClassVar[tuple[str, ...]] = ("complement",)
    idle_at = (
        ("noise", 0, ("noise_steps", "noise_step_size")),
        ("noise_steps", 0, ("noise_step_size",)),
        ("complement", None, ("threshold",)),
    )
    name: Literal["dclr"] = "dclr"
    noise: float = Field(1.0, ge=0)
    """The number of noise vectors that are negatives, in batches; 0: none."""
    noise_steps: int = Field(4, ge=0)
    """The number of steps in which the noise moves towards the sentences."""
    noise_step_size: float = Field(1e-3, gt=0)
    """The length of such a step; a noise vector's elements have a standard deviation of 1."""
    complement: str | None = None
    """An encoder with the same tokenizer that finds false negatives; null: every other sentence is
    a negative."""
    threshold: float = Field(0.9, ge=-1, le=1)
    """The complement's cosine from which a sentence is no negative of another (the paper's phi)."""


class DiffCseSettings(TwoMaskSettings):
    """The settings of DiffCSE (Chuang et al., 2022): finding the tokens that were replaced."""

    encoders: ClassVar[tuple[str, ...]] = ("generator",)
    idle_at = (("detection_weight", 0, ("mask_share",)),)
    name: Literal["diffcse"] = "diffcse"
    generator: str | None = None
    """The masked language model with the same tokenizer that replaces tokens; null: the encoder as
    it is before training, which then needs its masked-language-model head."""
    mask_share: float = Field(0.3, gt=0, lt=1)
    """The share of a sentence's tokens that the generator fills in."""
    detection_weight: float = Field(0.005, ge=0)
    """The weight of the loss of finding the replaced tokens."""


# RankCSE's settings of the distillation.
_DISTILLATION = (
    *("teacher", "second_teacher", "teacher_weight"),
    *("distillation", "student_temperature", "teacher_temperature"),
)


class RankCseSettings(TwoMaskSettings):
    """The settings of RankCSE (Liu et al., 2023): the rankings of teachers are distilled."""

    encoders: ClassVar[tuple[str, ...]] = ("teacher", "second_teacher")
    idle_at = (
        ("distillation", "listmle", ("teacher_temperature",)),
        ("second_teacher", None, ("teacher_weight",)),
        ("distillation_weight", 0, _DISTILLATION),
    )
    name: Literal["rankcse"] = "rankcse"
    teacher: str | None = None
    """The encoder with the same tokenizer whose similarities rank the sentences; required unless
    distillation_weight is 0."""
    second_teacher: str | None = None
    """A second teacher; the similarities of both are averaged."""
    teacher_weight: float = Field(0.33, ge=0, le=1)
    """The first teacher's weight in the average; the second has the rest."""
    distillation: Literal["listmle", "listnet"] = "listmle"
    """The loss on the teachers' rankings: of their order, or of their softmax."""
    student_temperature: float = Field(0.05, gt=0)
    """The temperature of the encoder's similarities in the distillation."""
    teacher_temperature: float = Field(0.025, gt=0)
    """The temperature of the teachers' similarities (listnet)."""
    consistency_weight: float = Field(1.0, ge=0)
    """The weight of the divergence between the rankings of a sentence's two views."""
    distillation_weight: float = Field(1.0, ge=0)


class PclSettings(BareSettings):
    """The settings of PCL (Wu et al., 2022): a group of positives, and a second network."""

    name: Literal["pcl"] = "pcl"
    augmentations: str = ",".join(AUGMENTATIONS)
    """The changes of the tokens that make the positives, separated by commas: shuffle, invert,
    delete, repeat. Another positive is the sentence itself."""
    copies: int = Field(2, ge=1)
    """The number of positives that each augmentation makes."""
    share: float = Field(0.2, ge=0, lt=1)
    """The share of its tokens that a sentence loses (delete) or has twice (repeat)."""
    group_weight: float = Field(1.0, ge=0)
    """The weight of the loss that has all positives of a sentence on one side."""
    cooperation_weight: float = Field(1.0, ge=0)
    """The weight of the divergences between the two networks; 0: no second network."""

    @field_validator("augmentations")
    @classmethod
    def _known(cls, augmentations: str) -> str:
        for name in augmentations.split(","):
            if name not in AUGMENTATIONS:
                raise ValueError(
                    f"there is no augmentation {name!r}; give one or more of "
                    f"{', '.join(AUGMENTATIONS)}, separated by commas"
                )
        return augmentations

    @property
    def idle(self) -> dict[str, str]:
        used = {"delete", "repeat"} & {*self.augmentations.split(",")}
        unread = {} if used else {"share": "method.augmentations has no delete and no repeat"}
        return super().idle | unread


class SncseSettings(ContrastiveSettings):
    """The settings of SNCSE (Wang et al., 2022): the sentence's negation as a soft negative."""

    roles: ClassVar[tuple[str, ...]] = ("anchor", "positive")
    idle_at = (("margin_weight", 0, ("alpha", "beta")),)
    name: Literal["sncse"] = "sncse"
    alpha: float = Field(0.1, ge=0)
    """By how much the negation's cosine must be below the positive's at least."""
    beta: float = Field(0.3, ge=0)
    """By how much the negation's cosine may be below the positive's at most."""
    margin_weight: float = Field(1e-3, ge=0)
    """The weight of the loss that keeps the difference of the cosines between the two."""

    @field_validator("beta")
    @classmethod
    def _after_alpha(cls, beta: float, info: ValidationInfo) -> float:
        alpha = info.data.get("alpha", 0.0)
        if beta < alpha:
            raise ValueError(f"it is the larger margin; give at least method.alpha ({alpha})")
        return beta


class TsdaeSettings(AnyMethodSettings):
    """The settings of TSDAE (Wang et al., 2021), trained with sentence-transformers' loss."""

    name: Literal["tsdae"] = "tsdae"
    readout: Pooling = "cls"
    deletion: float = Field(0.6, ge=0, lt=1)
    """The share of a sentence's tokens that is deleted before it is encoded."""


class MlmSettings(AnyMethodSettings):
    """The settings of masked language modelling on packed rows (`cotbert pretrain`)."""

    name: Literal["mlm"] = "mlm"
    mask_share: float = Field(0.15, gt=0, lt=1)
    """The share of a row's tokens that is predicted. Of these 80 % become the mask, 10 % another
    token, and 10 % stay."""
    whole_word: bool = False
    """Whether all tokens of a word are predicted together."""
    packed_length: int = Field(128, ge=8)
    """The maximum number of tokens of a row of packed sentences, including special tokens."""
