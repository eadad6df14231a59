"""Read the answers of an endpoint with OpenAI's chat completions API, of whatever form they are."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

# Values of finish_reason with which a text ends early, and would again, with the reason of the row.
UNFINISHED = {"length": "cut_off", "content_filter": "content_filter"}
# The reason of a row that the model has refused, in which it would persist.
REFUSAL = "refusal"
# The tags around the reasoning of models such as Qwen and DeepSeek, which some servers leave in the
# answer; the first of them may be in the prompt instead.
REASONING, REASONING_END = "<think>", "</think>"


@dataclass(frozen=True)
class Answer:
    """The answer to a request: a text, or None and the reason of the last failure.

    unfinished: a value of UNFINISHED if the endpoint ended the text early, REFUSAL if the model
    refused, else "". tokens_in, tokens_out: numbers of tokens over all attempts.
    """

    text: str | None
    reason: str = ""
    unfinished: str = ""
    tokens_in: int = 0
    tokens_out: int = 0

    @property
    def paid(self) -> bool:
        return self.tokens_in + self.tokens_out > 0


def read_answer(body: str) -> Answer:
    """Return the text and the numbers of tokens in a response's body."""
    values = _object(body)
    if values is None:  # such as the page of a proxy, or an answer that was cut off on its way
        return Answer(None, "an answer that is not a JSON object")
    usage = values.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    text, refusal, finish = _first_choice(values)
    unfinished, reason = UNFINISHED.get(finish, ""), ""
    if unfinished:
        text, reason = None, f"finish_reason {finish}"
    elif text is None:
        unfinished = REFUSAL if refusal else ""
        reason = f"a refusal: {refusal}" if refusal else "an answer without a text"
    return Answer(
        text,
        reason,
        unfinished,
        _count(usage.get("prompt_tokens")),
        _count(usage.get("completion_tokens")),
    )


def _object(body: str) -> dict[str, Any] | None:
    """Return the JSON object in a body; None if there is none."""
    try:
        values = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None


def error_message(body: str) -> str:
    """Return the beginning of an error's message, as OpenAI's API gives it; "" if there is none."""
    error = (_object(body) or {}).get("error")
    message = error.get("message") if isinstance(error, dict) else error
    return _beginning(message)


def _beginning(value: Any) -> str:
    """Return the beginning of a text on one line; "" for any other value."""
    return " ".join(value.split())[:200] if isinstance(value, str) else ""


def _first_choice(values: dict[str, Any]) -> tuple[str | None, str, str]:
    """Return message.content of choices[0], None if it is not a text, the beginning of
    message.refusal, with which OpenAI's models refuse, and finish_reason.

    Lone surrogates, which JSON can escape and UTF-8 cannot encode, become question marks.
    """
    refusal = ""
    try:
        choice = values["choices"][0]
        refusal = _beginning(choice["message"].get("refusal"))
        content, finish = choice["message"]["content"], str(choice.get("finish_reason"))
    except (AttributeError, KeyError, IndexError, TypeError):
        return None, refusal, ""
    text = _without_reasoning(content) if isinstance(content, str) else ""
    return (text.encode(errors="replace").decode() if text.strip() else None), refusal, finish


def _without_reasoning(content: str) -> str:
    """Return the text after a model's reasoning, "" if the reasoning does not end."""
    _, end, text = content.rpartition(REASONING_END)
    endless = not end and content.lstrip().startswith(REASONING)
    return "" if endless else text


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0
