"""The options of `cotbert augment`: two methods of rewriting, and the bounds of a rewrite.

Nothing heavy is imported here, since the command line reads its defaults from these classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

from cotbert_core.errors import UserError, unknown

ENGINES = ("auto", "ctranslate2", "transformers")
PRECISIONS = ("auto", "float32", "float16", "int8")
ON_FAILURE = ("keep", "stop")
OPENAI = "https://api.openai.com/v1"
OPENAI_KEY = "OPENAI_API_KEY"


@dataclass(frozen=True)
class BackTranslation:
    """Translation into another language and back with two Marian models.

    forward, backward: hub names or folders. forward_prefix, backward_prefix: the target language's
    token for models with several (None: chosen by the vocabulary, "": none). beam: width of the
    beam search, 1 for greedy. temperature: sample instead of beam search, from the top_k likeliest
    tokens (0: all). max_length_factor: most output tokens for each source token. batch_tokens:
    source tokens of a batch (None: by device).
    """

    name: ClassVar[str] = "back-translation"

    forward: str = "Helsinki-NLP/opus-mt-en-zh"
    backward: str = "Helsinki-NLP/opus-mt-zh-en"
    forward_prefix: str | None = None
    backward_prefix: str | None = None
    engine: str = "auto"
    precision: str = "auto"
    beam: int = 4
    temperature: float | None = None
    top_k: int = 0
    seed: int = 0
    max_length_factor: float = 2.0
    batch_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise unknown("engine", self.engine, ENGINES)
        if self.precision not in PRECISIONS:
            raise unknown("precision", self.precision, PRECISIONS)
        _at_least(self, 1, "beam", "batch_tokens")
        _at_least(self, 0, "top_k", "seed")
        _above(self, 0, "temperature", "max_length_factor")
        if self.top_k and self.temperature is None:
            raise UserError(
                f"top_k is {self.top_k} and there is no temperature, but top_k only applies to "
                "sampling: give --temperature too"
            )

    @property
    def samples(self) -> bool:
        return self.temperature is not None


@dataclass(frozen=True)
class LlmRewriting:
    """One request per sentence to an endpoint with OpenAI's chat completions API.

    key_variable: environment variable of the key (None: OPENAI_API_KEY if it is set). prompt: text
    of the request, with {sentence} in it. temperature, max_answer_tokens: None leaves both to the
    endpoint. concurrency: most pending requests. requests_per_minute: None for no limit. retries:
    most retries of a sentence after requests without an answer. timeout: seconds of a request.
    budget_tokens: most tokens read and written together. price_in, price_out: price of a million
    tokens. on_failure: `keep` the source of a row without a rewrite, or `stop`. first_wait: seconds
    before the first retry.
    """

    name: ClassVar[str] = "llm"
    # The options that decide the rewrites; others may change when a job is continued.
    deciding: ClassVar[tuple[str, ...]] = (
        *("model", "prompt", "base_url", "temperature", "max_answer_tokens"),
    )

    model: str
    prompt: str
    base_url: str = OPENAI
    key_variable: str | None = None
    temperature: float | None = None
    max_answer_tokens: int | None = None
    concurrency: int = 8
    requests_per_minute: float | None = None
    retries: int = 6
    timeout: float = 60.0
    budget_tokens: int | None = None
    price_in: float | None = None
    price_out: float | None = None
    on_failure: str = "keep"
    first_wait: float = 1.0

    def __post_init__(self) -> None:
        if not self.model:
            raise UserError("model is empty: name the endpoint's model with --model")
        if "{sentence}" not in self.prompt:
            raise UserError("the prompt holds no {sentence}: write it where the sentence belongs")
        if self.on_failure not in ON_FAILURE:
            raise unknown("on_failure", self.on_failure, ON_FAILURE)
        _at_least(self, 1, "concurrency", "max_answer_tokens", "budget_tokens")
        _at_least(self, 0, "retries", "temperature", "price_in", "price_out")
        _above(self, 0, "requests_per_minute", "timeout", "first_wait")
        if (self.price_in is None) != (self.price_out is None):
            raise UserError("price_in and price_out go together: give both or neither")


@dataclass(frozen=True)
class Limits:
    """The fewest and most words of a rewrite for each word of its source."""

    min_ratio: float = 0.5
    max_ratio: float = 2.0

    def __post_init__(self) -> None:
        if not 0 <= self.min_ratio <= 1 <= self.max_ratio < math.inf:
            raise UserError(
                f"min_ratio is {self.min_ratio} and max_ratio is {self.max_ratio}: give a "
                "min_ratio from 0 to 1 and a max_ratio of at least 1"
            )


Method = BackTranslation | LlmRewriting


@dataclass(frozen=True)
class AugmentOptions:
    """The corpus to augment and the method. Raises UserError for an invalid value.

    corpus: a prepared folder. encoder: where the corpus's encoder is now, if it has moved. workers:
    number of workers of back-translation; None for one per GPU, or one per machine without GPUs.
    """

    corpus: str
    method: Method
    limits: Limits = field(default_factory=Limits)
    encoder: str | None = None
    workers: int | None = None

    def __post_init__(self) -> None:
        _at_least(self, 1, "workers")
        if self.workers is not None and isinstance(self.method, LlmRewriting):
            raise UserError(
                f"workers is {self.workers} and the method is llm, which runs in one process: give "
                "--concurrency instead"
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
