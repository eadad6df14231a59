"""Requests to an endpoint that speaks OpenAI's chat completions: limits, retries and the key.

The key is read from the environment of this process and stands in the request's header alone: it
is taken out of whatever the endpoint sends back, so that it reaches no file, log or error.
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
# An endpoint may name hours; it is asked again after these seconds at the latest.
LONGEST_RETRY_AFTER = 600.0
HIDDEN = "***"
# The first tells of a wrong key, the others of a wrong model or address: no retry mends them.
REFUSED = {401: "the key", 403: "the key or its rights", 404: "the model or the address"}


class StoppedError(RuntimeError):
    """The job cannot go on now; what is done is kept and the same command goes on later."""


@dataclass(frozen=True)
class Answer:
    """What became of a request: a text, or None and why not, after all tries. tokens_in,
    tokens_out: of all tries."""

    text: str | None
    reason: str = ""
    tokens_in: int = 0
    tokens_out: int = 0

    @property
    def paid(self) -> bool:
        return self.tokens_in + self.tokens_out > 0


class Pacer:
    """When the next request may start: evenly spread over the minute, and after a pause."""

    def __init__(self, per_minute: float | None) -> None:
        self._gap = 60.0 / per_minute if per_minute else 0.0
        self._next = 0.0
        self._lock = threading.Lock()

    def wait(self, stop: threading.Event) -> None:
        """Return at this request's turn, or at once when all is to stop."""
        with self._lock:
            turn = max(self._next, time.monotonic())
            self._next = turn + self._gap
        stop.wait(max(0.0, turn - time.monotonic()))

    def pause(self, seconds: float) -> None:
        """No request starts for so long."""
        with self._lock:
            self._next = max(self._next, time.monotonic() + seconds)


@dataclass
class _Tries:
    """What the tries of one sentence have used, and why the last one failed."""

    tokens_in: int = 0
    tokens_out: int = 0
    reason: str = "not asked"

    def ended(self, text: str | None) -> Answer:
        reason = "" if text is not None else self.reason
        return Answer(text, reason, self.tokens_in, self.tokens_out)


def read_key(variable: str | None, base_url: str) -> str:
    """The key in an environment variable; "" where none is set and none was named."""
    name = variable or OPENAI_KEY
    key = os.environ.get(name, "").strip()
    if not key and (variable or base_url.rstrip("/") == OPENAI):
        raise UserError(f"the environment variable {name} is not set: put the endpoint's key there")
    if not all(33 <= ord(character) <= 126 for character in key):
        raise UserError(f"the environment variable {name} holds no key: it has blanks or signs")
    return key


def check_url(url: str) -> str:
    """The address without a slash at its end; UserError for what is none or may hold a secret."""
    try:
        parts = urlsplit(url)
        right = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        right = False
    if not right:
        raise UserError("base_url is no http address: give one such as https://host/v1")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise UserError(
            "base_url holds more than an address: give it without user, password and query, and "
            "the key by --key-variable"
        )
    return url.rstrip("/")


@dataclass
class ChatEndpoint:
    """One endpoint for many threads. UserError when it cannot be asked at all."""

    options: LlmRewriting
    stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        if find_spec("httpx2") is None:
            raise UserError(
                "httpx2 is not installed, which requests need: pip install cotbert[llm]"
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
        """UserError when the endpoint cannot be reached or refuses the key; costs nothing."""
        try:
            status = self._client.get(
                f"{self._url}/models", timeout=min(CHECK_SECONDS, self.options.timeout)
            ).status_code
        except self._errors as error:
            raise UserError(
                f"the endpoint {self._url} cannot be reached ({self._hide(_named(error))}): see to "
                "--base-url and the network"
            ) from None
        if status in (401, 403):
            raise UserError(f"the endpoint {self._url} answers {status}: see to {REFUSED[status]}")

    def ask(self, content: str) -> Answer:
        """The answer to one message, tried again where that may help.

        Raises StoppedError where no request can succeed.
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
        """A text or None, and the seconds to wait before the next try; None: none would help."""
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
            # The limit is that of all requests, so all of them wait.
            self._pacer.pause(retry_after(response.headers.get("retry-after"), wait))
            tries.reason = "status 429"
            return None, 0.0
        return self._read(response, tries), wait

    def _backoff(self, number: int) -> float:
        """Seconds before the next try: doubled each time, and spread so that requests which
        failed together do not come back together."""
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
        """The text of a response, or None with the reason in `tries`."""
        status = response.status_code
        if status in REFUSED:
            raise StoppedError(
                f"the endpoint {self._url} answers {status}: see to {REFUSED[status]}; the same "
                "command then goes on"
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
    """Seconds that a Retry-After header asks for, as a number or a date; `otherwise` without."""
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
    """choices[0].message.content, None where there is no such text."""
    try:
        content = values["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError):
        return None
    return content if isinstance(content, str) and content.strip() else None


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def _named(error: Exception) -> str:
    return redact(f"{type(error).__name__}: {error}".rstrip(": "))
