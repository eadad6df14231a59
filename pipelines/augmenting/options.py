"""What `cotbert augment` is asked to do: two ways of rewriting, and the bounds of a rewrite.

Nothing heavy is imported here: the command line reads its defaults from these classes.
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
    """There and back with two Marian models.

    forward, backward: hub names or folders. forward_prefix, backward_prefix: the target language's
    token for models with several (None: chosen, "": none). beam: outputs followed at a time, 1 for
    greedy. temperature: sampling in place of a beam, from the top_k likeliest tokens (0: all).
    max_length_factor: tokens written at most for each token read. batch_tokens: source tokens that
    are translated at a time (None: by device).
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
                f"top_k is {self.top_k} and there is no temperature: only sampling has a top_k, "
                "give --temperature too"
            )

    @property
    def samples(self) -> bool:
        return self.temperature is not None


@dataclass(frozen=True)
class LlmRewriting:
    """One request a sentence to an endpoint that speaks OpenAI's chat completions.

    key_variable: environment variable of the key (None: OPENAI_API_KEY where it is set).
    prompt: what is asked, with {sentence} in it. temperature, max_answer_tokens: None leaves both
    to the endpoint. concurrency: requests under way at most. requests_per_minute: None for no
    limit. retries: of one sentence, after a request that gave no answer. timeout: seconds.
    budget_tokens: read and written together. price_in, price_out: of a million tokens.
    """

    name: ClassVar[str] = "llm"
    # What decides on the rewrites; the rest may differ when a job goes on.
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
            raise UserError("the prompt holds no {sentence}: say where the sentence goes")
        if self.on_failure not in ON_FAILURE:
            raise unknown("on_failure", self.on_failure, ON_FAILURE)
        _at_least(self, 1, "concurrency", "max_answer_tokens", "budget_tokens")
        _at_least(self, 0, "retries", "temperature", "price_in", "price_out")
        _above(self, 0, "requests_per_minute", "timeout", "first_wait")
        if (self.price_in is None) != (self.price_out is None):
            raise UserError("price_in and price_out go together: give both or neither")


@dataclass(frozen=True)
class Limits:
    """How many words a rewrite may have for each word of its source."""

    min_ratio: float = 0.5
    max_ratio: float = 2.0

    def __post_init__(self) -> None:
        if not 0 <= self.min_ratio <= 1 <= self.max_ratio < math.inf:
            raise UserError(
                f"min_ratio is {self.min_ratio} and max_ratio {self.max_ratio}: a rewrite as long "
                "as its source must lie between them"
            )


Method = BackTranslation | LlmRewriting


@dataclass(frozen=True)
class AugmentOptions:
    """corpus: a prepared folder. encoder: where the corpus's encoder is now, if it has moved.
    workers: of back-translation; None: one for each GPU, or one for each machine without any."""

    corpus: str
    method: Method
    limits: Limits = field(default_factory=Limits)
    encoder: str | None = None
    workers: int | None = None

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
