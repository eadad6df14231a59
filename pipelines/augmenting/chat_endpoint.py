"""Requests to an endpoint with OpenAI's chat completions API: limits, retries and the key.

Retries are implemented here, since those of client libraries (urllib3, openai) support neither a
job that stops nor a rate limit that all threads share.

The key is read from this process's environment and only used in the request's header. It is removed
from everything that the endpoint returns, so it reaches no file, log or error.
"""

from __future__ import annotations

import json
import math
import os
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from cotbert_core.errors import UserError
from cotbert_core.messages.redaction import HIDDEN, redact
from pipelines.augmenting.llm_options import OPENAI, OPENAI_KEY, LlmRewriting

LONGEST_WAIT = 60.0
CHECK_SECONDS = 20.0
# Upper limit for Retry-After, with which an endpoint may request a delay of hours.
LONGEST_RETRY_AFTER = 600.0
# Status codes that are not retried, with what to check.
REFUSED = {401: "the key", 403: "the key or its rights", 404: "the model or the address"}


class StoppedError(RuntimeError):
    """The job cannot continue now; its rewrites are kept, and the same command continues it."""


@dataclass(frozen=True)
class Answer:
    """The answer to a request: a text, or None and the reason of the last failure.

    tokens_in, tokens_out: numbers of tokens over all attempts.
    """

    text: str | None
    reason: str = ""
    tokens_in: int = 0
    tokens_out: int = 0

    @property
    def paid(self) -> bool:
        return self.tokens_in + self.tokens_out > 0


class RateLimiter:
    """Space the requests of all threads evenly over the minute. clock: returns seconds."""

    def __init__(
        self, per_minute: float | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._gap = 60.0 / per_minute if per_minute else 0.0
        self._clock, self._next = clock, 0.0
        self._lock = threading.Lock()

    def wait(self, stop: threading.Event) -> None:
        """Wait until the next request may start; return at once if `stop` is set."""
        with self._lock:
            start = max(self._next, self._clock())
            self._next = start + self._gap
        stop.wait(max(0.0, start - self._clock()))

    def pause(self, seconds: float) -> None:
        """Start no request for this many seconds."""
        with self._lock:
            self._next = max(self._next, self._clock() + seconds)


def read_key(variable: str | None, base_url: str) -> str:
    """Return the key in an environment variable; "" if the default variable is not set."""
    name = variable or OPENAI_KEY
    key = os.environ.get(name, "").strip()
    if not key and (variable or base_url.rstrip("/") == OPENAI):
        raise UserError(f"the environment variable {name} is not set: put the endpoint's key in it")
    if not all(33 <= ord(character) <= 126 for character in key):
        raise UserError(
            f"the environment variable {name} has no valid key: set it to printable ASCII "
            "characters without blanks"
        )
    return key


def check_url(url: str) -> str:
    """Return the address without a trailing slash; UserError if it is no http address or may
    contain a secret."""
    try:
        parts = urlsplit(url)
        right = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        right = False
    if not right:
        raise UserError("base_url is not an http address: give one such as https://host/v1")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise UserError(
            "base_url contains more than an address: give it without user, password and query, and "
            "give the key's environment variable with --key-variable"
        )
    return url.rstrip("/")


@dataclass
class ChatEndpoint:
    """A thread-safe client of an endpoint. Raises UserError if its address or key is invalid."""

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
        self._limiter = RateLimiter(self.options.requests_per_minute)
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
        """Raise UserError if the endpoint is unreachable or refuses the key; uses no tokens."""
        try:
            status = self._client.get(
                f"{self._url}/models", timeout=min(CHECK_SECONDS, self.options.timeout)
            ).status_code
        except self._errors as error:
            raise UserError(
                f"the endpoint {self._url} cannot be reached "
                f"({self._hide_key(_described(error))}): check --base-url and the network"
            ) from None
        if status in (401, 403):
            raise UserError(f"the endpoint {self._url} answers {status}: check {REFUSED[status]}")

    def complete(self, content: str) -> Answer:
        """Return the answer to a message, with retries if they may help.

        Raises StoppedError if no request can succeed.
        """
        answer = Answer(None, "not requested")
        for number in range(self.options.retries + 1):
            self._limiter.wait(self.stop)
            if self.stop.is_set():
                break
            latest, wait = self._try(content, number)
            tokens_in = answer.tokens_in + latest.tokens_in
            tokens_out = answer.tokens_out + latest.tokens_out
            answer = replace(latest, tokens_in=tokens_in, tokens_out=tokens_out)
            if answer.text is not None or wait is None:
                break
            if number < self.options.retries:
                self.stop.wait(wait)
        return answer

    def _try(self, content: str, number: int) -> tuple[Answer, float | None]:
        """Return the answer to one request, and the seconds before a retry (None: do not retry).

        number: number of earlier attempts.
        """
        url, wait = f"{self._url}/chat/completions", self._backoff(number)
        try:
            response = self._client.post(url, json=self._body(content))
        except self._errors as error:
            return Answer(None, self._hide_key(_described(error))), wait
        status = response.status_code
        if status in REFUSED:
            raise StoppedError(
                f"the endpoint {self._url} answers {status}: check {REFUSED[status]}, then give "
                "the same command again to continue"
            )
        if status == 429:
            # The rate limit applies to all requests, so all threads wait.
            self._limiter.pause(retry_after(response.headers.get("retry-after"), wait))
            return Answer(None, "status 429"), 0.0
        if status != 200:
            return Answer(None, f"status {status}"), None if status == 400 else wait
        return self._read(response.text), wait

    def _backoff(self, number: int) -> float:
        """Return the seconds before the next attempt: exponential backoff with random jitter."""
        longest = min(LONGEST_WAIT, self.options.first_wait * 2.0**number)
        return longest * random.uniform(0.5, 1.0)

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

    def _read(self, body: str) -> Answer:
        """Return the text and the numbers of tokens in a response's body."""
        try:
            values = json.loads(self._hide_key(body))
        except ValueError:
            values = None
        usage = values.get("usage") if isinstance(values, dict) else None
        usage = usage if isinstance(usage, dict) else {}
        text = _content(values)
        return Answer(
            text,
            "" if text is not None else "an answer without a text",
            _count(usage.get("prompt_tokens")),
            _count(usage.get("completion_tokens")),
        )

    def _hide_key(self, text: str) -> str:
        return text.replace(self._key, HIDDEN) if self._key else text


def retry_after(value: str | None, default: float) -> float:
    """Return the seconds of a Retry-After header (a number or a date), or `default`."""
    seconds = math.nan
    with suppress(ValueError):
        seconds = parsedate_to_datetime(value or "").timestamp() - time.time()
    with suppress(ValueError):
        seconds = float(value or "")
    return min(max(seconds, 0.0), LONGEST_RETRY_AFTER) if math.isfinite(seconds) else default


def _content(values: Any) -> str | None:
    """Return choices[0].message.content, or None if it is not a text."""
    try:
        content = values["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError):
        return None
    return content if isinstance(content, str) and content.strip() else None


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def _described(error: Exception) -> str:
    return redact(f"{type(error).__name__}: {error}".rstrip(": "))
