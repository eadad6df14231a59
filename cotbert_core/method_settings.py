"""The settings of each training method; `name` selects the method.

`template_roles` are the templates that a method uses, `needs` the paired texts that its corpus
must have, and `uses` the paired texts that it uses (`cotbert_core.training.batches.COLUMNS`).
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from cotbert_core.choices import Denoise as Denoise

PadPositions = Literal["aligned", "released"]
HeadName = Literal["tanh", "transform"]
DevReading = Literal["inference", "released"]
EmptySentence = Literal["bare", "blank"]
Positive = Literal["dropout", "template", "paired", "neighbour", "rest"]
# The positives that are found in the documents of the corpus.
FROM_DOCUMENTS = ("neighbour", "rest")
# The positives of a method with at most one template.
ONE_TEMPLATE = ("dropout", "paired", *FROM_DOCUMENTS)


class Settings(BaseModel):
    """Base of all settings."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class AnyMethodSettings(Settings):
    """Base of the settings of every method."""

    roles: ClassVar[tuple[str, ...]] = ()
    encoders: ClassVar[tuple[str, ...]] = ()
    """The settings that name further encoders."""

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


class ContrastiveSettings(AnyMethodSettings):
    """Base of the settings of every method with InfoNCE in its loss."""

    temperature: float = Field(0.05, gt=0)
    """The temperature, which divides the cosine."""


class PositiveSettings(ContrastiveSettings):
    """Base of the settings of methods whose positive can be chosen."""

    positives: ClassVar[tuple[str, ...]]
    """The positives that the method supports."""
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
    def template_roles(self) -> tuple[str, ...]:
        """The roles with a template: not the positive where the anchor's serves both."""
        same = self.positive == "dropout"
        return tuple(role for role in self.roles if not (same and role == "positive"))

    @property
    def needs(self) -> tuple[str, ...]:
        return ("augmented",) if self.positive == "paired" else ()


class BareSettings(ContrastiveSettings):
    """Base of the settings of contrastive methods that read sentences without a template."""

    readout: Literal["cls", "mean"] = "cls"


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

    denoise: Denoise = "pad"
    pad_positions: PadPositions = "aligned"
    """The position ids of RoBERTa's bias rows. aligned: those of the filled template. released: as
    in the released code, where `pad` skips the pads and `position` counts from 0 instead of 2."""
    freeze_bias: bool = False
    """Whether the template bias is computed without gradient."""


class CotBertSettings(DenoisedSettings, PositiveSettings):
    """The settings of CoT-BERT's objective (paper, section 3)."""

    roles: ClassVar[tuple[str, ...]] = ("anchor", "positive", "negative")
    positives = get_args(Positive)
    name: Literal["cot-bert"] = "cot-bert"
    positive: Positive = "template"
    extended: bool = True
    """Whether the a(i+,j-) term is in the loss (Table 4)."""


class PromptBertSettings(DenoisedSettings, PositiveSettings):
    """The settings of PromptBERT without labels (paper, section 4.3)."""

    roles: ClassVar[tuple[str, ...]] = ("anchor", "positive")
    positives = get_args(Positive)
    name: Literal["promptbert"] = "promptbert"
    positive: Positive = "template"
    denoise: Denoise = "position"


class SupervisedPromptBertSettings(DenoisedSettings):
    """The settings of PromptBERT on (sentence, entailment, contradiction) triples."""

    roles: ClassVar[tuple[str, ...]] = ("anchor",)
    name: Literal["promptbert-supervised"] = "promptbert-supervised"
    denoise: Denoise = "position"
    head: HeadName = "transform"
    """The head, kept at inference: transform (BERT's prediction head) or tanh (the papers' RoBERTa
    models)."""

    @property
    def needs(self) -> tuple[str, ...]:
        return ("augmented", "negative")


class OptiPromptSettings(PromptedSettings):
    """The settings of a continuous template for a frozen encoder (PromptBERT, section 4.2)."""

    roles: ClassVar[tuple[str, ...]] = ("anchor",)
    name: Literal["optiprompt"] = "optiprompt"
    head: HeadName = "transform"
    """The head during training; it is dropped afterwards."""
    replaced: Literal["template", "last"] = "template"
    """The tokens that the trained embeddings replace. template: each token of the template. last:
    the last token of a row that equals it, as in the released code."""


class DenoSentSettings(PositiveSettings):
    """The settings of DenoSent: a denoising decoder in addition to the contrastive loss."""

    roles: ClassVar[tuple[str, ...]] = ("anchor",)
    positives = ONE_TEMPLATE
    name: Literal["denosent"] = "denosent"
    positive: Positive = "paired"
    """The positive x+, which the decoder also rebuilds. paired: dropout if the corpus has no
    augmented texts."""
    objective: Literal["both", "contrastive", "generative"] = "both"
    contrastive_weight: float = Field(5.0, gt=0)
    generative_weight: float = Field(7.0, gt=0)
    dropout: float = Field(0.825, ge=0, lt=1)
    """The continuous noise: the share of the decoder's input elements that is set to zero."""
    layers: int = Field(16, ge=1)
    """The number of decoder layers."""
    heads: int = Field(1, ge=1)
    """The number of attention heads of a decoder layer; must divide the encoder's hidden size."""
    feed_forward: int = Field(2048, ge=1)
    """The inner size of a decoder layer's feed-forward part."""
    decoder_dropout: float = Field(0.1, ge=0, lt=1)
    """The dropout rate inside the decoder's layers."""
    target: Literal["augmented", "original"] = "augmented"
    """The text that the decoder rebuilds. augmented: x+ from noisy x+ (released code), or x from
    noisy x if a row has no x+. original: x from noisy x."""
    readout: Literal["mask", "cls", "mean"] = "mask"
    projected: bool = True
    """Whether the contrastive loss uses the vectors after the projection (released code)."""
    inference: Literal["whole", "released"] = "whole"
    """How vectors are read after training. whole: from whole sentences that end in a full stop.
    released: without an added full stop and cut to max_length, as in training."""

    @property
    def template_roles(self) -> tuple[str, ...]:
        return self.roles if self.readout == "mask" else ()

    @property
    def needs(self) -> tuple[str, ...]:
        return ()

    @property
    def uses(self) -> tuple[str, ...]:
        return ("augmented",) if self.positive == "paired" else ()


class SimCseSettings(BareSettings, PositiveSettings):
    """The settings of SimCSE (Gao et al., 2021): two dropout masks of a sentence, or triples."""

    positives = ONE_TEMPLATE
    name: Literal["simcse"] = "simcse"
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


class ESimCseSettings(BareSettings):
    """The settings of ESimCSE (Wu et al., 2022): repeated tokens and a queue of negatives."""

    name: Literal["esimcse"] = "esimcse"
    repetition: float = Field(0.32, ge=0, le=1)
    """The largest share of its tokens that a positive repeats; a share below two tokens counts as
    two."""
    queue: float = Field(2.5, ge=0)
    """The number of earlier sentences that are negatives, in batches; 0: none."""
    momentum: float = Field(0.995, ge=0, lt=1)
    """The share of its weights that the encoder of the queue keeps in each step."""


class DiffCseSettings(BareSettings):
    """The settings of DiffCSE (Chuang et al., 2022): finding the tokens that were replaced."""

    encoders: ClassVar[tuple[str, ...]] = ("generator",)
    name: Literal["diffcse"] = "diffcse"
    generator: str | None = None
    """The masked language model with the same tokenizer that replaces tokens; null: the encoder as
    it is before training, which then needs its masked-language-model head."""
    mask_share: float = Field(0.3, gt=0, lt=1)
    """The share of a sentence's tokens that the generator fills in."""
    detection_weight: float = Field(0.005, ge=0)
    """The weight of the loss of finding the replaced tokens."""


class RankCseSettings(BareSettings):
    """The settings of RankCSE (Liu et al., 2023): the rankings of teachers are distilled."""

    encoders: ClassVar[tuple[str, ...]] = ("teacher", "second_teacher")
    name: Literal["rankcse"] = "rankcse"
    teacher: str | None = None
    """The encoder with the same tokenizer whose similarities rank the sentences; required."""
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


class TsdaeSettings(AnyMethodSettings):
    """The settings of TSDAE (Wang et al., 2021), trained with sentence-transformers' loss."""

    name: Literal["tsdae"] = "tsdae"
    readout: Literal["cls", "mean"] = "cls"
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


METHOD_SETTINGS: dict[str, type[AnyMethodSettings]] = {
    "cot-bert": CotBertSettings,
    "promptbert": PromptBertSettings,
    "promptbert-supervised": SupervisedPromptBertSettings,
    "optiprompt": OptiPromptSettings,
    "denosent": DenoSentSettings,
    "simcse": SimCseSettings,
    "esimcse": ESimCseSettings,
    "diffcse": DiffCseSettings,
    "rankcse": RankCseSettings,
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
    | ESimCseSettings
    | DiffCseSettings
    | RankCseSettings
    | TsdaeSettings
    | MlmSettings,
    Field(discriminator="name"),
]
