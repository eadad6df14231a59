"""The options of `cotbert augment`: two methods of rewriting, and the limits of a rewrite."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal

from cotbert_core.errors import UserError
from pipelines.augmenting.llm_options import LlmRewriting
from pipelines.options import shared
from pipelines.options.checks import above, at_least, only_with
from pipelines.options.declare import INPUT, REWRITING, Option

EngineName = Literal["auto", "ctranslate2", "transformers"]
TranslationPrecision = Literal["auto", "float32", "float16", "int8"]


@dataclass(frozen=True)
class BackTranslation:
    """Translate into another language and back with two Marian models."""

    name: ClassVar[str] = "back-translation"

    forward: str = Option(
        "translate with this Marian model: a hub name or a folder", "MODEL", path="name"
    ).field("Helsinki-NLP/opus-mt-en-zh")
    backward: str = Option(
        "translate back with this Marian model: a hub name or a folder", "MODEL", path="name"
    ).field("Helsinki-NLP/opus-mt-zh-en")
    forward_prefix: str | None = Option(
        "prefix each text with this target-language token if the model has several target "
        "languages, e.g. >>cmn_Hans<<; '' for none",
        "TOKEN",
        may_be_empty=True,
        default="inferred from the vocabulary",
    ).field(None)
    backward_prefix: str | None = Option(
        "prefix each text to translate back with this target-language token; '' for none",
        "TOKEN",
        may_be_empty=True,
        default="inferred from the vocabulary",
    ).field(None)
    engine: EngineName = Option(
        "translate with this library; auto is ctranslate2 if it is installed and no GPU is"
        " used, else transformers"
    ).field("auto")
    precision: TranslationPrecision = Option(
        "translate in this number format; auto is int8 with ctranslate2, float16 on a GPU, "
        "else float32"
    ).field("auto")
    beam: int = shared.BEAM.field(4)
    temperature: float | None = shared.TEMPERATURE.field(None)
    top_k: int = Option(
        "sample from this many of the most likely tokens; 0 for all",
        "N",
        unit="tokens",
        default="all tokens",
    ).field(0)
    seed: int = replace(shared.SEED, group="").field(0)
    max_length_factor: float = Option("write at most this many tokens per source token", "X").field(
        2.0
    )
    batch_tokens: int | None = Option(
        "translate batches of this many source tokens",
        "N",
        unit="tokens",
        default="4,096 tokens on a CPU, 32,768 on a GPU",
    ).field(None)

    def __post_init__(self) -> None:
        at_least(self, 1, "beam", "batch_tokens")
        at_least(self, 0, "top_k", "seed")
        above(self, 0, "temperature", "max_length_factor")
        only_with("temperature", self, "top_k", "seed")
        if self.samples and self.beam not in (1, BackTranslation.beam):
            raise UserError(
                f"beam is {self.beam} and temperature is {self.temperature}, which samples without "
                "a beam: leave one of them out"
            )

    @property
    def samples(self) -> bool:
        return self.temperature is not None


@dataclass(frozen=True)
class Limits:
    """The allowed ratio of a rewrite's number of words to its source's."""

    min_ratio: float = Option(
        "drop a rewrite with fewer words than this share, 0 to 1, of its source's words",
        "X",
        group=REWRITING,
    ).field(0.5)
    max_ratio: float = Option(
        "drop a rewrite with more words than this many times its source's words",
        "X",
        group=REWRITING,
        unit="times",
    ).field(2.0)

    def __post_init__(self) -> None:
        if not 0 <= self.min_ratio <= 1 <= self.max_ratio < math.inf:
            raise UserError(
                f"min_ratio is {self.min_ratio} and max_ratio is {self.max_ratio}: give a "
                "min_ratio from 0 to 1 and a max_ratio of at least 1"
            )


Method = BackTranslation | LlmRewriting


@dataclass(frozen=True)
class AugmentOptions:
    """The options of `cotbert augment`; workers only applies to back-translation."""

    corpus: Annotated[
        str,
        Option("rewrite the sentences of this prepared corpus", "DIR", group=INPUT, path="input"),
    ]
    method: Annotated[
        Method, Option("rewrite by back-translation or with a language model", group=REWRITING)
    ]
    limits: Limits = field(default_factory=Limits)
    encoder: str | None = replace(shared.ENCODER, default="the corpus's encoder").field(None)
    workers: int | None = shared.WORKERS.field(None)

    def __post_init__(self) -> None:
        at_least(self, 1, "workers")
        if self.workers is not None and isinstance(self.method, LlmRewriting):
            raise UserError(
                f"workers is {self.workers} and the method is llm, which runs in one process: give "
                "--concurrency instead"
            )
