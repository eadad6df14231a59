"""Requests to an endpoint with OpenAI's chat completions API: limits, retries and the key.

The key is read from the environment of this process and only used in the request's header. It is
removed from everything that the endpoint sends back, so it reaches no file, log or error.
"""

from __future__ import annotations

import json
import math
import os
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from cotbert_core.errors import UserError
from cotbert_core.messages.redaction import redact
from pipelines.augmenting.llm_options import OPENAI, OPENAI_KEY, LlmRewriting

LONGEST_WAIT = 60.0
CHECK_SECONDS = 20.0
# An endpoint may ask for hours; the next request is sent after so many seconds at the latest.
LONGEST_RETRY_AFTER = 600.0
HIDDEN = "***"
# Status codes for which a retry is useless, with what to check.
REFUSED = {401: "the key", 403: "the key or its rights", 404: "the model or the address"}


class StoppedError(RuntimeError):
    """The job cannot continue now; its rewrites are kept, and the same command continues later."""


@dataclass(frozen=True)
class Answer:
    """The answer to a request: a text, or None and the reason of the last failure.

    tokens_in, tokens_out: sums over all tries.
    """

    text: str | None
    reason: str = ""
    tokens_in: int = 0
    tokens_out: int = 0

    @property
    def paid(self) -> bool:
        return self.tokens_in + self.tokens_out > 0


class Pacer:
    """Decides when the next request may start: evenly spread over the minute, after any pause."""

    def __init__(self, per_minute: float | None) -> None:
        self._gap = 60.0 / per_minute if per_minute else 0.0
        self._next = 0.0
        self._lock = threading.Lock()

    def wait(self, stop: threading.Event) -> None:
        """Wait for this request's turn; return at once if `stop` is set."""
        with self._lock:
            turn = max(self._next, time.monotonic())
            self._next = turn + self._gap
        stop.wait(max(0.0, turn - time.monotonic()))

    def pause(self, seconds: float) -> None:
        """Let no request start for so many seconds."""
        with self._lock:
            self._next = max(self._next, time.monotonic() + seconds)


@dataclass
class _Tries:
    """The tokens used by the tries of one sentence, and why the last try failed."""

    tokens_in: int = 0
    tokens_out: int = 0
    reason: str = "not requested"

    def ended(self, text: str | None) -> Answer:
        reason = "" if text is not None else self.reason
        return Answer(text, reason, self.tokens_in, self.tokens_out)


def read_key(variable: str | None, base_url: str) -> str:
    """Return the key in an environment variable; "" if it is not set and none was named."""
    name = variable or OPENAI_KEY
    key = os.environ.get(name, "").strip()
    if not key and (variable or base_url.rstrip("/") == OPENAI):
        raise UserError(f"the environment variable {name} is not set: put the endpoint's key in it")
    if not all(33 <= ord(character) <= 126 for character in key):
        raise UserError(
            f"the environment variable {name} holds no valid key: set it to printable ASCII "
            "characters without blanks"
        )
    return key


def check_url(url: str) -> str:
    """Return the address without a slash at its end; UserError if it is no http address or may
    hold a secret."""
    try:
        parts = urlsplit(url)
        right = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        right = False
    if not right:
        raise UserError("base_url is not an http address: give one such as https://host/v1")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise UserError(
            "base_url holds more than an address: give it without user, password and query, and "
            "name the key's environment variable with --key-variable"
        )
    return url.rstrip("/")


@dataclass
class ChatEndpoint:
    """An endpoint that many threads use. Raises UserError if its address or key is invalid."""

    options: LlmRewriting
    stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        if find_spec("httpx2") is None:
            raise UserError(
                "requests to an endpoint need the package httpx2: install it with "
                "pip install 'cotbert[llm]'"
            )
        import httpx2

        self._url = check_url(self.options.base_url)
        self._key = read_key(self.options.key_variable, self._url)
        self._pacer = Pacer(self.options.requests_per_minute)
        self._draw = random.Random()
        self._errors = (httpx2.HTTPError, httpx2.InvalidURL)
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        self._client = httpx2.Client(
            headers=headers,
            timeout=self.options.timeout,
            limits=httpx2.Limits(max_connections=self.options.concurrency),
        )

    @property
    def has_key(self) -> bool:
        return bool(self._key)

    def close(self) -> None:
        self._client.close()

    def check(self) -> None:
        """Raise UserError if the endpoint cannot be reached or refuses the key; costs no tokens."""
        try:
            status = self._client.get(
                f"{self._url}/models", timeout=min(CHECK_SECONDS, self.options.timeout)
            ).status_code
        except self._errors as error:
            raise UserError(
                f"the endpoint {self._url} cannot be reached ({self._hide(_named(error))}): check "
                "--base-url and the network"
            ) from None
        if status in (401, 403):
            raise UserError(f"the endpoint {self._url} answers {status}: check {REFUSED[status]}")

    def ask(self, content: str) -> Answer:
        """Return the answer to one message, with retries if they may help.

        Raises StoppedError if no request can succeed.
        """
        tries = _Tries()
        for number in range(self.options.retries + 1):
            self._pacer.wait(self.stop)
            if self.stop.is_set():
                break
            text, wait = self._try(content, tries, number)
            if text is not None:
                return tries.ended(text)
            if wait is None:
                break
            if number < self.options.retries:
                self.stop.wait(wait)
        return tries.ended(None)

    def _try(self, content: str, tries: _Tries, number: int) -> tuple[str | None, float | None]:
        """Return a text or None, and the seconds to wait before a retry (None: do not retry)."""
        url, wait = f"{self._url}/chat/completions", self._backoff(number)
        try:
            response = self._client.post(url, json=self._body(content))
        except self._errors as error:
            tries.reason = self._hide(_named(error))
            return None, wait
        if response.status_code == 400:
            tries.reason = "status 400"
            return None, None
        if response.status_code == 429:
            # The limit applies to all requests, so all of them wait.
            self._pacer.pause(retry_after(response.headers.get("retry-after"), wait))
            tries.reason = "status 429"
            return None, 0.0
        return self._read(response, tries), wait

    def _backoff(self, number: int) -> float:
        """Return the seconds before the next try: doubled each time, with random jitter, so
        requests that failed together are not repeated together."""
        longest = min(LONGEST_WAIT, self.options.first_wait * 2.0**number)
        return longest * self._draw.uniform(0.5, 1.0)

    def _body(self, content: str) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.options.model,
            "messages": [{"role": "user", "content": content}],
        }
        if self.options.temperature is not None:
            body["temperature"] = self.options.temperature
        if self.options.max_answer_tokens is not None:
            body["max_tokens"] = self.options.max_answer_tokens
        return body

    def _read(self, response: Any, tries: _Tries) -> str | None:
        """Return the text of a response, or None with the reason in `tries`."""
        status = response.status_code
        if status in REFUSED:
            raise StoppedError(
                f"the endpoint {self._url} answers {status}: check {REFUSED[status]}, then give "
                "the same command again to continue"
            )
        if status != 200:
            tries.reason = f"status {status}"
            return None
        tries.reason = "an answer without a text"
        return self._text(response, tries)

    def _text(self, response: Any, tries: _Tries) -> str | None:
        try:
            values = json.loads(self._hide(response.text))
        except ValueError:
            return None
        if not isinstance(values, dict):
            return None
        usage = values.get("usage")
        if isinstance(usage, dict):
            tries.tokens_in += _count(usage.get("prompt_tokens"))
            tries.tokens_out += _count(usage.get("completion_tokens"))
        return _content(values)

    def _hide(self, text: str) -> str:
        return text.replace(self._key, HIDDEN) if self._key else text


def retry_after(value: str | None, otherwise: float) -> float:
    """Return the seconds of a Retry-After header (a number or a date), or `otherwise`."""
    seconds = _seconds(value) if value else None
    if seconds is None or not math.isfinite(seconds):
        return otherwise
    return min(max(seconds, 0.0), LONGEST_RETRY_AFTER)


def _seconds(value: str) -> float | None:
    readers: tuple[Callable[[str], float], ...] = (
        float,
        lambda date: parsedate_to_datetime(date).timestamp() - time.time(),
    )
    for read in readers:
        try:
            return read(value)
        except ValueError:
            continue
    return None


def _content(values: dict[str, Any]) -> str | None:
    """Return choices[0].message.content, None if there is no such text."""
    try:
        content = values["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError):
        return None
    return content if isinstance(content, str) and content.strip() else None


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def _named(error: Exception) -> str:
    return redact(f"{type(error).__name__}: {error}".rstrip(": "))
