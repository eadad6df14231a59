"""The options of `cotbert augment --method llm`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from cotbert_core.errors import UserError
from cotbert_core.files import read_text
from pipelines.options import shared
from pipelines.options.checks import above, at_least
from pipelines.options.declare import Option

OnFailure = Literal["keep", "stop"]
OPENAI = "https://api.openai.com/v1"
OPENAI_KEY = "OPENAI_API_KEY"
PROMPT = """\
Paraphrase the sentence below: keep its meaning and its language, and change its words and its \
structure. Answer with the new sentence alone, on one line, without quotation marks.

Sentence: {sentence}
"""
PRICE = Option(
    "report costs at this price per million prompt tokens",
    "PRICE",
    unit="price",
    default="costs are not reported",
)


def read_prompt(path: Path) -> str:
    """Return the prompt in a file; UserError if it cannot be read or has no {sentence}."""
    prompt = read_text(path, "prompt")
    if "{sentence}" not in prompt:
        raise UserError(f"prompt {str(path)!r} has no {{sentence}}: put it where the sentence goes")
    return prompt


@dataclass(frozen=True)
class LlmRewriting:
    """Send one request per sentence to an endpoint with OpenAI's chat completions API."""

    name: ClassVar[str] = "llm"
    # The options that determine the rewrites; others may change when a job is continued.
    deciding: ClassVar[tuple[str, ...]] = (
        *("model", "prompt", "base_url", "temperature", "max_answer_tokens"),
    )

    model: Annotated[
        str,
        Option("use this model, by the endpoint's name for it", "NAME", default="none; required"),
    ]
    prompt: str = Option(
        "send the text in this file as the prompt, with {sentence} where the sentence goes",
        "FILE",
        kind=Path,
        convert=read_prompt,
        default="a request for a paraphrase",
    ).field(PROMPT)
    base_url: str = Option(
        "send requests to this endpoint, which has OpenAI's chat completions API", "URL"
    ).field(OPENAI)
    key_variable: str | None = Option(
        "read the API key from this environment variable",
        "NAME",
        default="OPENAI_API_KEY, if it is set",
    ).field(None)
    temperature: float | None = shared.TEMPERATURE.field(None)
    max_answer_tokens: int | None = Option(
        "limit each answer to this many tokens", "N", unit="tokens", default="the endpoint's limit"
    ).field(None)
    concurrency: int = Option(
        "send at most this many requests at a time", "N", unit="requests"
    ).field(8)
    requests_per_minute: float | None = Option(
        "send at most this many requests per minute",
        "N",
        unit="requests per minute",
        default="no limit",
    ).field(None)
    retries: int = Option(
        "retry a sentence this many times after a timeout, status 408, 409, 429 or 5xx, or an "
        "answer without a text",
        "N",
        unit="retries",
    ).field(6)
    timeout: float = Option(
        "wait this many seconds for an answer", "SECONDS", unit="seconds"
    ).field(60.0)
    budget_tokens: int | None = Option(
        "stop when about this many tokens are used, including those of earlier runs",
        "N",
        unit="tokens",
        default="no limit",
    ).field(None)
    price_in: float | None = PRICE.field(None)
    price_out: float | None = replace(
        PRICE, help="report costs at this price per million answer tokens"
    ).field(None)
    on_failure: OnFailure = Option(
        "keep a sentence without a usable answer as it is, or stop the job"
    ).field("keep")

    def __post_init__(self) -> None:
        at_least(self, 1, "concurrency", "max_answer_tokens", "budget_tokens")
        at_least(self, 0, "retries", "temperature", "price_in", "price_out")
        above(self, 0, "requests_per_minute", "timeout")
        if (self.price_in is None) != (self.price_out is None):
            raise UserError("only one of price_in and price_out is given: give both or neither")
