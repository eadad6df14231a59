"""Requests to an endpoint with OpenAI's chat completions API: limits, retries and the key.

urllib3's Retry decides which requests are retried and how long they wait; it does not send them,
because all threads share a rate limit and a stopped job must not wait.

The key is read from this process's environment and only used in the request's header. It is removed
from errors, and from answers unless it may be a word, so it reaches no file, log or error.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError, InvalidHeader
from urllib3.exceptions import TimeoutError as HTTPTimeoutError
from urllib3.util import Retry

from cotbert_core.errors import UserError
from cotbert_core.messages.redaction import HIDDEN, SHORTEST_SECRET, SHORTEST_TOKEN, redact
from pipelines.augmenting.chat_answers import Answer, error_message, read_answer
from pipelines.augmenting.llm_options import OPENAI, OPENAI_KEY, LlmRewriting
from pipelines.augmenting.rate_limiter import RateLimiter
from pipelines.runtime.progress import say_once

# Seconds before the first retry, and the most before any retry.
FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0
CHECK_SECONDS = 20.0
# Upper limit for Retry-After, with which an endpoint may request a delay of hours.
LONGEST_RETRY_AFTER = 600.0
# An answer has a few kilobytes.
LARGEST_BODY = 1 << 24
# Status codes that are retried: a timeout, a conflict, a rate limit and faults of the server.
RETRIED = frozenset({408, 409, 429, *range(500, 600)})
TIMEOUTS = (requests.Timeout, HTTPTimeoutError)
# Status codes that are not retried, with what to check.
REFUSED = {401: "the key", 403: "the key or its rights", 404: "the model or the address"}


class StoppedError(RuntimeError):
    """The job cannot continue now; its rewrites are kept, and the same command continues it."""


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
        self._url = check_url(self.options.base_url)
        self._key = read_key(self.options.key_variable, self._url)
        self._limiter = RateLimiter(self.options.requests_per_minute)
        self._retry = Retry(
            self.options.retries,
            status_forcelist=RETRIED,
            allowed_methods=None,
            backoff_factor=FIRST_WAIT,
            backoff_jitter=FIRST_WAIT,
            backoff_max=LONGEST_WAIT,
        )
        self._session = requests.Session()
        # A function, since a header would be replaced by what ~/.netrc has for the host.
        self._session.auth = self._authorize
        self._session.mount(self._url, HTTPAdapter(pool_maxsize=self.options.concurrency))

    def _authorize(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._key:
            request.headers["Authorization"] = f"Bearer {self._key}"
        return request

    @property
    def has_key(self) -> bool:
        return bool(self._key)

    def close(self) -> None:
        self._session.close()

    def check(self) -> None:
        """Raise UserError if the endpoint is unreachable or refuses the key; uses no tokens."""
        timeout = min(CHECK_SECONDS, self.options.timeout)
        try:
            status = self._session.get(f"{self._url}/models", timeout=timeout).status_code
        except requests.RequestException as error:
            why = self._failure(error, timeout)
            raise UserError(
                f"the endpoint {self._url} cannot be reached ({why}): check "
                "--base-url and the network"
            ) from None
        if status in (401, 403):
            raise UserError(f"the endpoint {self._url} answers {status}: check {REFUSED[status]}")

    def complete(self, content: str) -> Answer:
        """Return the answer to a message, with retries if they may help.

        Raises StoppedError if no request can succeed.
        """
        answer, retry = Answer(None, "not requested"), self._retry
        while True:
            self._limiter.wait(self.stop)
            if self.stop.is_set():
                return answer
            latest, response = self._ask(content)
            tokens_in = answer.tokens_in + latest.tokens_in
            tokens_out = answer.tokens_out + latest.tokens_out
            answer = replace(latest, tokens_in=tokens_in, tokens_out=tokens_out)
            refused = response is not None and response.status_code not in (200, *RETRIED)
            if answer.text is not None or answer.unfinished or refused or not retry.total:
                return answer
            retry = retry.increment()
            pause = _retry_after(retry, response) or retry.get_backoff_time()
            if pause > LONGEST_WAIT:
                say_once(
                    f"the endpoint {self._url} asks for a pause of more than a minute "
                    f"({latest.reason}), and the job waits; Ctrl-C ends it, and the same command "
                    "continues it"
                )
            self.stop.wait(pause)

    def _ask(self, content: str) -> tuple[Answer, requests.Response | None]:
        """Return the answer to one request and the response, if there is one."""
        deadline = time.monotonic() + self.options.timeout
        try:
            with self._session.post(
                f"{self._url}/chat/completions",
                json=self._body(content),
                timeout=self.options.timeout,
                allow_redirects=False,
                stream=True,
            ) as response:
                body = read_body(response, deadline).decode("utf-8", "replace")
        except (requests.RequestException, HTTPError) as error:
            reason = self._failure(error, self.options.timeout)
            if isinstance(error, TIMEOUTS):  # with the default retries a row takes seven of them
                say_once(
                    f"the endpoint {self._url} gave {reason} to a request: if this continues, "
                    "raise --timeout, lower --concurrency, or give --max-answer-tokens"
                )
            return Answer(None, reason), None
        status = response.status_code
        if status == 200:
            return read_answer(self._hide_key(body, SHORTEST_TOKEN)), response
        # The key is hidden before the message is cut, which would leave its beginning.
        message = self._described(error_message(self._hide_key(body, SHORTEST_SECRET)))
        if status in REFUSED:
            said = f" ({message})" if message else ""
            raise StoppedError(
                f"the endpoint {self._url} answers {status}{said}: check {REFUSED[status]}, then "
                "give the same command again to continue"
            )
        return Answer(None, ": ".join(filter(None, (f"status {status}", message)))), response

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

    def _failure(self, error: Exception, timeout: float) -> str:
        """Return why a request failed, which had `timeout` seconds."""
        if isinstance(error, TIMEOUTS):
            return f"no answer within {timeout:g} s"
        return self._described(error)

    def _described(self, error: Exception | str) -> str:
        return self._hide_key(described(error), SHORTEST_SECRET)

    def _hide_key(self, text: str, shortest: int) -> str:
        """Return the text without the key, if it has at least this many characters: local servers
        accept keys such as `none`, which occur in any text."""
        return text.replace(self._key, HIDDEN) if len(self._key) >= shortest else text


def read_body(response: requests.Response, deadline: float) -> bytes:
    """Return the body of a response; ReadTimeout if it does not end by then, RequestException if it
    is too long.

    The timeout of `requests` is that of each read, and an endpoint may send a blank line now and
    then to keep the connection open.
    """
    body = b""
    while part := response.raw.read1(LARGEST_BODY, decode_content=True):
        body += part
        if time.monotonic() > deadline:
            raise requests.ReadTimeout("the answer did not end in time")
        if len(body) > LARGEST_BODY:
            raise requests.RequestException(f"the answer did not end within {LARGEST_BODY} bytes")
    return body


def described(error: Exception | str) -> str:
    """Return the type and the text of an error, or of its cause, without secrets."""
    if isinstance(error, Exception):
        cause = getattr(error.args[0] if error.args else None, "reason", error)
        return redact(f"{type(error).__name__}: {cause}".rstrip(": "))
    return redact(error)


def _retry_after(retry: Retry, response: requests.Response | None) -> float | None:
    """Return the seconds that a response asks to wait; None if it names none."""
    try:
        seconds = None if response is None else retry.get_retry_after(response.raw)
    except InvalidHeader:
        return None
    return None if seconds is None else min(seconds, LONGEST_RETRY_AFTER)
