"""The settings of each training method; `name` tells which.

`template_roles` are the templates a method reads, `needs` the companion texts that its corpus
must have and `uses` those it makes use of (`cotbert_core.training.batches.COLUMNS`).
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from cotbert_core.choices import Denoise as Denoise

PadPositions = Literal["aligned", "released"]
HeadName = Literal["tanh", "transform"]
DevReading = Literal["inference", "released"]
EmptySentence = Literal["bare", "blank"]


class Settings(BaseModel):
    """Base of all settings."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class AnyMethodSettings(Settings):
    """Of every method."""

    roles: ClassVar[tuple[str, ...]] = ()

    @property
    def template_roles(self) -> tuple[str, ...]:
        return self.roles

    @property
    def needs(self) -> tuple[str, ...]:
        return ()

    @property
    def uses(self) -> tuple[str, ...]:
        return self.needs


class ContrastiveSettings(AnyMethodSettings):
    """Of every method that has InfoNCE in its loss."""

    temperature: float = Field(0.05, gt=0)
    """Divides the cosine."""


class PromptedSettings(ContrastiveSettings):
    """Of methods whose released code is PromptBERT's or made from it."""

    dev_reading: DevReading = "inference"
    """How a dev check reads vectors: as at inference, or as released, without the full stop and,
    for PromptBERT, denoised."""
    empty_sentence: EmptySentence = "bare"
    """What a byte-level tokenizer (RoBERTa) has for an empty sentence at inference: nothing, or,
    as released, the blank that precedes any other."""


class DenoisedSettings(PromptedSettings):
    """Of methods that subtract a template's bias from the mask vector."""

    denoise: Denoise = "pad"
    pad_positions: PadPositions = "aligned"
    """Position ids of RoBERTa's bias rows: those of the filled template, or as released, where
    `pad` skips the pads and `position` counts from 0 instead of 2."""
    freeze_bias: bool = False
    """Whether the template bias is taken without gradient."""


class CotBertSettings(DenoisedSettings):
    """CoT-BERT's objective (paper, section 3)."""

    roles: ClassVar[tuple[str, ...]] = ("anchor", "positive", "negative")
    name: Literal["cot-bert"] = "cot-bert"
    extended: bool = True
    """Whether the a(i+,j-) term is in the loss (Table 4)."""


class PromptBertSettings(DenoisedSettings):
    """PromptBERT without labels (paper, section 4.3): two templates, or one and dropout."""

    roles: ClassVar[tuple[str, ...]] = ("anchor", "positive")
    name: Literal["promptbert"] = "promptbert"
    denoise: Denoise = "position"


class SupervisedPromptBertSettings(DenoisedSettings):
    """PromptBERT on (sentence, entailment, contradiction) triples, all in one template."""

    roles: ClassVar[tuple[str, ...]] = ("anchor",)
    name: Literal["promptbert-supervised"] = "promptbert-supervised"
    denoise: Denoise = "position"
    head: HeadName = "transform"
    """Kept at inference: transform (BERT's prediction head) or tanh (the papers' RoBERTa)."""

    @property
    def needs(self) -> tuple[str, ...]:
        return ("augmented", "negative")


class OptiPromptSettings(PromptedSettings):
    """A continuous template before a frozen encoder (PromptBERT, section 4.2)."""

    roles: ClassVar[tuple[str, ...]] = ("anchor",)
    name: Literal["optiprompt"] = "optiprompt"
    head: HeadName = "transform"
    """Of the training head, dropped afterwards."""
    replaced: Literal["template", "last"] = "template"
    """What the trained embeddings stand for: each token of the template, or, as released, the last
    token of a row that equals it."""


class DenoSentSettings(ContrastiveSettings):
    """DenoSent: a denoising decoder beside the contrastive loss."""

    roles: ClassVar[tuple[str, ...]] = ("anchor",)
    name: Literal["denosent"] = "denosent"
    objective: Literal["both", "contrastive", "generative"] = "both"
    contrastive_weight: float = Field(5.0, gt=0)
    generative_weight: float = Field(7.0, gt=0)
    dropout: float = Field(0.825, ge=0, lt=1)
    """The continuous noise: share of the decoder's input elements set to zero."""
    layers: int = Field(16, ge=1)
    """Of the decoder."""
    heads: int = Field(1, ge=1)
    """Attention heads of a decoder layer; must divide the encoder's hidden size."""
    feed_forward: int = Field(2048, ge=1)
    """Width of a decoder layer's inner product."""
    decoder_dropout: float = Field(0.1, ge=0, lt=1)
    """Inside the decoder's layers."""
    target: Literal["augmented", "original"] = "augmented"
    """Rebuild x+ from noisy x+ (released code), or x from noisy x; x where a row has no x+."""
    readout: Literal["mask", "cls", "mean"] = "mask"
    projected: bool = True
    """Whether the contrastive vectors are those after the projection (released code)."""
    inference: Literal["whole", "released"] = "whole"
    """How vectors are read after training: from whole sentences that end in a full stop, or as
    released, without adding one and cut to max_length as in training."""

    @property
    def template_roles(self) -> tuple[str, ...]:
        return self.roles if self.readout == "mask" else ()

    @property
    def uses(self) -> tuple[str, ...]:
        return ("augmented",)


class SimCseSettings(ContrastiveSettings):
    """SimCSE (Gao et al., 2021): the same sentence under two dropout masks, or triples."""

    name: Literal["simcse"] = "simcse"
    readout: Literal["cls", "mean"] = "cls"
    triples: bool = False
    """(sentence, entailment, contradiction) triples in place of dropout."""
    keep_head: bool = False
    """Whether the dense and tanh head stays at inference, as supervised SimCSE's does."""

    @property
    def needs(self) -> tuple[str, ...]:
        return ("augmented", "negative") if self.triples else ()


class TsdaeSettings(AnyMethodSettings):
    """TSDAE (Wang et al., 2021), by sentence-transformers' own loss."""

    name: Literal["tsdae"] = "tsdae"
    readout: Literal["cls", "mean"] = "cls"
    deletion: float = Field(0.6, ge=0, lt=1)
    """Share of a sentence's tokens that are deleted before it is encoded."""


METHOD_SETTINGS: dict[str, type[AnyMethodSettings]] = {
    "cot-bert": CotBertSettings,
    "promptbert": PromptBertSettings,
    "promptbert-supervised": SupervisedPromptBertSettings,
    "optiprompt": OptiPromptSettings,
    "denosent": DenoSentSettings,
    "simcse": SimCseSettings,
    "tsdae": TsdaeSettings,
}

MethodSettings = Annotated[
    CotBertSettings
    | PromptBertSettings
    | SupervisedPromptBertSettings
    | OptiPromptSettings
    | DenoSentSettings
    | SimCseSettings
    | TsdaeSettings,
    Field(discriminator="name"),
]
