"""The options of `cotbert augment`: two methods of rewriting, and the limits of a rewrite."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args

from cotbert_core.errors import UserError, unknown
from pipelines.options import shared
from pipelines.options.declare import CLEANING, INPUT, MODEL, Option

EngineName = Literal["auto", "ctranslate2", "transformers"]
TranslationPrecision = Literal["auto", "float32", "float16", "int8"]
OnFailure = Literal["keep", "stop"]
OPENAI = "https://api.openai.com/v1"
OPENAI_KEY = "OPENAI_API_KEY"
PROMPT = """\
Paraphrase the sentence below: keep its meaning and its language, and change its words and its \
structure. Answer with the new sentence alone, on one line, without quotation marks.

Sentence: {sentence}
"""
TEMPERATURE = Option(
    "sample at this temperature",
    "X",
    group=MODEL,
    default="beam search in back-translation, the endpoint's in llm",
)


def read_prompt(path: Path) -> str:
    """Return the prompt in a file; UserError if it cannot be read or has no {sentence}."""
    try:
        prompt = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"prompt {str(path)!r} cannot be read ({error}): give a text file"
        ) from None
    if "{sentence}" not in prompt:
        raise UserError(f"prompt {str(path)!r} holds no {{sentence}}: say where the sentence goes")
    return prompt


@dataclass(frozen=True)
class BackTranslation:
    """Translate there and back with two Marian models."""

    name: ClassVar[str] = "back-translation"

    forward: Annotated[
        str,
        Option("translate by this Marian model: a hub name or a folder", "MODEL", path="name"),
    ] = "Helsinki-NLP/opus-mt-en-zh"
    backward: Annotated[
        str,
        Option("translate back by this Marian model: a hub name or a folder", "MODEL", path="name"),
    ] = "Helsinki-NLP/opus-mt-zh-en"
    forward_prefix: Annotated[
        str | None,
        Option(
            "start each text with this target-language token if the model writes several "
            "languages, e.g. >>cmn_Hans<<; '' for none",
            "TOKEN",
            default="what the vocabulary suggests",
        ),
    ] = None
    backward_prefix: Annotated[
        str | None,
        Option(
            "start each text with this target-language token for the model back; '' for none",
            "TOKEN",
            default="what the vocabulary suggests",
        ),
    ] = None
    engine: Annotated[
        EngineName,
        Option(
            "translate by this library; auto is ctranslate2 if it is installed and no GPU is"
            " used, else transformers"
        ),
    ] = "auto"
    precision: Annotated[
        TranslationPrecision,
        Option(
            "translate in this number format; auto is int8 with ctranslate2, float16 on a GPU, "
            "else float32"
        ),
    ] = "auto"
    beam: Annotated[int, shared.BEAM] = 4
    temperature: Annotated[float | None, TEMPERATURE] = None
    top_k: Annotated[
        int,
        Option(
            "sample from this many likeliest tokens; 0 for all",
            "N",
            unit="tokens",
            default="all tokens",
        ),
    ] = 0
    seed: Annotated[int, replace(shared.SEED, group="")] = 0
    max_length_factor: Annotated[
        float,
        Option("write at most this many tokens for each token read", "X", unit="tokens"),
    ] = 2.0
    batch_tokens: Annotated[
        int | None,
        Option(
            "translate batches of this many source tokens",
            "N",
            unit="tokens",
            default="4096 tokens on a CPU, 32768 on a GPU",
        ),
    ] = None

    def __post_init__(self) -> None:
        if self.engine not in get_args(EngineName):
            raise unknown("engine", self.engine, get_args(EngineName))
        if self.precision not in get_args(TranslationPrecision):
            raise unknown("precision", self.precision, get_args(TranslationPrecision))
        _at_least(self, 1, "beam", "batch_tokens")
        _at_least(self, 0, "top_k", "seed")
        _above(self, 0, "temperature", "max_length_factor")
        if self.top_k and self.temperature is None:
            raise UserError(
                f"top_k is {self.top_k} and there is no temperature: only sampling has a top_k, "
                "give --temperature too"
            )

    @property
    def samples(self) -> bool:
        return self.temperature is not None


@dataclass(frozen=True)
class LlmRewriting:
    """Send one request a sentence to an endpoint for OpenAI's chat completions.

    first_wait: seconds before the first retry.
    """

    name: ClassVar[str] = "llm"
    # What decides on the rewrites; the rest may differ when a job goes on.
    deciding: ClassVar[tuple[str, ...]] = (
        *("model", "prompt", "base_url", "temperature", "max_answer_tokens"),
    )

    model: Annotated[
        str,
        Option(
            "ask for this model, by the endpoint's name for it",
            "NAME",
            default="none: it must be given",
        ),
    ]
    prompt: Annotated[
        str,
        Option(
            "send the text in this file as the prompt, with {sentence} where the sentence goes",
            "FILE",
            kind=Path,
            convert=read_prompt,
            default="a request for a paraphrase",
        ),
    ] = PROMPT
    base_url: Annotated[
        str, Option("send requests to this endpoint for OpenAI's chat completions", "URL")
    ] = OPENAI
    key_variable: Annotated[
        str | None,
        Option(
            "read the API key from this environment variable",
            "NAME",
            default="OPENAI_API_KEY, if it is set",
        ),
    ] = None
    temperature: Annotated[float | None, TEMPERATURE] = None
    max_answer_tokens: Annotated[
        int | None,
        Option(
            "limit each answer to this many tokens",
            "N",
            unit="tokens",
            default="the endpoint's limit",
        ),
    ] = None
    concurrency: Annotated[
        int, Option("send at most this many requests at a time", "N", unit="requests")
    ] = 8
    requests_per_minute: Annotated[
        float | None,
        Option(
            "send at most this many requests a minute",
            "N",
            unit="requests a minute",
            default="no limit",
        ),
    ] = None
    retries: Annotated[
        int,
        Option(
            "retry a sentence this many times after a timeout, status 429 or 5xx, or an unusable "
            "answer",
            "N",
            unit="retries",
        ),
    ] = 6
    timeout: Annotated[
        float, Option("wait this many seconds for an answer", "SECONDS", unit="seconds")
    ] = 60.0
    budget_tokens: Annotated[
        int | None,
        Option(
            "stop before more tokens than this are used, those of earlier runs included",
            "N",
            unit="tokens",
            default="no limit",
        ),
    ] = None
    price_in: Annotated[
        float | None,
        Option(
            "report costs at this price of a million prompt tokens",
            "PRICE",
            unit="price",
            default="costs are not reported",
        ),
    ] = None
    price_out: Annotated[
        float | None,
        Option(
            "report costs at this price of a million answer tokens",
            "PRICE",
            unit="price",
            default="costs are not reported",
        ),
    ] = None
    on_failure: Annotated[
        OnFailure,
        Option("keep a sentence without a usable answer as it is, or stop the job"),
    ] = "keep"
    first_wait: float = 1.0

    def __post_init__(self) -> None:
        if not self.model:
            raise UserError("model is empty: name the endpoint's model with --model")
        if "{sentence}" not in self.prompt:
            raise UserError("the prompt holds no {sentence}: say where the sentence goes")
        if self.on_failure not in get_args(OnFailure):
            raise unknown("on_failure", self.on_failure, get_args(OnFailure))
        _at_least(self, 1, "concurrency", "max_answer_tokens", "budget_tokens")
        _at_least(self, 0, "retries", "temperature", "price_in", "price_out")
        _above(self, 0, "requests_per_minute", "timeout", "first_wait")
        if (self.price_in is None) != (self.price_out is None):
            raise UserError("price_in and price_out go together: give both or neither")


@dataclass(frozen=True)
class Limits:
    """How many words a rewrite may have for each word of its source."""

    min_ratio: Annotated[
        float,
        Option(
            "drop a rewrite of fewer words than this share, 0 to 1, of its source's words",
            "X",
            group=CLEANING,
        ),
    ] = 0.5
    max_ratio: Annotated[
        float,
        Option(
            "drop a rewrite of more words than this many times its source's words",
            "X",
            group=CLEANING,
            unit="times",
        ),
    ] = 2.0

    def __post_init__(self) -> None:
        if not 0 <= self.min_ratio <= 1 <= self.max_ratio < math.inf:
            raise UserError(
                f"min_ratio is {self.min_ratio} and max_ratio {self.max_ratio}: a rewrite as long "
                "as its source must lie between them"
            )


Method = BackTranslation | LlmRewriting


@dataclass(frozen=True)
class AugmentOptions:
    """What to rewrite, and how. workers: for back-translation only."""

    corpus: Annotated[
        str,
        Option(
            "rewrite the sentences of this prepared corpus",
            "DIR",
            group=INPUT,
            path="input",
        ),
    ]
    method: Annotated[
        Method,
        Option("rewrite by translating there and back, or by a language model", group=MODEL),
    ]
    limits: Limits = field(default_factory=Limits)
    encoder: Annotated[
        str | None, replace(shared.ENCODER, default="the one that the corpus names")
    ] = None
    workers: shared.Workers = None

    def __post_init__(self) -> None:
        _at_least(self, 1, "workers")
        if self.workers is not None and isinstance(self.method, LlmRewriting):
            raise UserError(
                f"workers is {self.workers} and the method is llm, which has one process: give "
                "--concurrency"
            )


def _at_least(options: Any, least: int, *names: str) -> None:
    _check(options, names, lambda value: value >= least, f"at least {least}")


def _above(options: Any, bound: float, *names: str) -> None:
    _check(options, names, lambda value: value > bound, f"a number above {bound}")


def _check(options: Any, names: tuple[str, ...], holds: Any, wanted: str) -> None:
    for name in names:
        value = getattr(options, name)
        if value is not None and not (math.isfinite(value) and holds(value)):
            raise UserError(f"{name} is {value}: give {wanted}")
