"""The settings of the three papers' methods."""

from __future__ import annotations

from typing import ClassVar, Literal, get_args

from pydantic import Field

from cotbert_core.choices import Readout
from cotbert_core.method_settings.bases import (
    ONE_TEMPLATE,
    Denoise,
    DenoisedSettings,
    HeadName,
    Positive,
    PositiveSettings,
    PromptedSettings,
)


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

    @property
    def needs_dropout(self) -> bool:
        return True


# DenoSent's settings of the generative loss.
_GENERATIVE = (
    *("generative_weight", "dropout", "layers", "heads", "feed_forward"),
    *("decoder_dropout", "target"),
)


class DenoSentSettings(PositiveSettings):
    """The settings of DenoSent: a denoising decoder in addition to the contrastive loss."""

    roles: ClassVar[tuple[str, ...]] = ("anchor",)
    positives = ONE_TEMPLATE
    idle_at = (
        ("objective", "contrastive", _GENERATIVE),
        ("objective", "generative", ("temperature", "contrastive_weight", "projected")),
        ("positive", "dropout", ("target",)),
    )
    name: Literal["denosent"] = "denosent"
    positive: Positive = "paired"
    """The positive x+, which the decoder also rebuilds. paired: dropout if the corpus has no
    augmented texts."""
    objective: Literal["both", "contrastive", "generative"] = "both"
    contrastive_weight: float = Field(5.0, gt=0)
    generative_weight: float = Field(7.0, gt=0)
    dropout: float = Field(0.825, ge=0, lt=1)
    """The continuous noise: the share of the decoder's input elements that is set to zero, after
    the encoder's own dropout has acted on its input embeddings."""
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
    readout: Readout = "mask"
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
