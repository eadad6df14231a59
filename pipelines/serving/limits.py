"""Limits that protect the service: bytes, seconds and connections.

uvicorn limits neither the size nor the duration of a request's headers and body.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from pipelines.serving.requests import RequestError

HEADER_BYTES, HEADER_SECONDS = 64 << 10, 10.0
# Bytes that are read and discarded after a refusal, so that the client can read the answer.
DISCARDED_BYTES = 256 << 20
# The longest that an answer waits for them where the connection ends after it, and for one of them.
DISCARD_SECONDS, DISCARD_SILENCE = 10.0, 1.0
# Maximum number of sockets, and of files that Ray, torch and Python have open.
MOST_CONNECTIONS, OTHER_FILES = 4096, 512
# Maximum number of waiting texts, unless one request may have more: at 1,000 sentences/s the last
# one waits for half a minute.
MOST_WAITING_TEXTS = 32_768
# Maximum memory of all bodies, as a multiple of the largest allowed one.
MOST_BODIES = 32


def allow_connections() -> None:
    """Raise this process's limit of open files for MOST_CONNECTIONS sockets, if allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_CONNECTIONS + OTHER_FILES
    limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


class TimedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol that closes connections with too slow or too long headers."""

    _clock: asyncio.TimerHandle | None = None
    _header_bytes = 0
    _discarded = 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._start_clock()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_clock()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        answered = self.cycle is not None and self.cycle.response_complete
        self._discarded = self._discarded + len(data) if answered else 0
        self._header_bytes += len(data)
        super().data_received(data)
        endless_headers = self._clock is not None and self._header_bytes > HEADER_BYTES
        if endless_headers or self._discarded > DISCARDED_BYTES:
            self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._discarded = 0
        if self._clock is None:
            self._start_clock()

    def on_headers_complete(self) -> None:
        self._stop_clock()
        super().on_headers_complete()

    def _start_clock(self) -> None:
        self._header_bytes = 0
        self._clock = self.loop.call_later(HEADER_SECONDS, self.transport.close)

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None


class Admission:
    """Count bytes and texts in memory, and refuse requests beyond the limits.

    most_bytes: maximum number of bytes of all bodies. most_texts: maximum number of waiting texts.
    """

    def __init__(self, most_bytes: int, most_texts: int) -> None:
        self._most = {"bytes": most_bytes, "texts": most_texts}
        self.held = {"bytes": 0, "texts": 0}

    @contextmanager
    def holding(self, what: str) -> Iterator[Callable[[int], None]]:
        """Yield a function that adds to the held amount until the block ends.

        It raises RequestError 503 at the limit. Bytes are added as they arrive, so clients that
        announce a large body but send nothing take no capacity.
        """
        own = 0

        def add(count: int) -> None:
            nonlocal own
            if self.held[what] + count > self._most[what]:
                raise RequestError(
                    503,
                    f"the service is busy: {self.held[what]:,} {what} are waiting; try again later",
                    code="overloaded",
                )
            own += count
            self.held[what] += count

        try:
            yield add
        finally:
            self.held[what] -= own


async def read_body(
    chunks: AsyncIterator[bytes],
    announced: str | None,
    most: int,
    hold: Callable[[int], None],
    *,
    silent: float,
    total: float,
) -> bytes:
    """Return a body of at most `most` bytes; RequestError 413 or 408 if it is larger or too slow.

    announced: the header Content-Length. hold: called with the size of each chunk. silent, total:
    maximum seconds without a byte and for the whole body.
    """
    # int() refuses thousands of digits, and no such length is valid.
    if announced is not None and (len(announced) > 18 or int(announced) > most):
        raise _too_large(most)
    body = bytearray()
    try:
        async with asyncio.timeout(total):
            while True:
                async with asyncio.timeout(silent):
                    chunk = await anext(chunks, b"")
                if not chunk:
                    return bytes(body)
                if len(body) + len(chunk) > most:
                    raise _too_large(most)
                hold(len(chunk))
                body += chunk
    except TimeoutError:
        raise RequestError(
            408,
            f"the body did not arrive in time ({len(body):,} bytes did): send it within "
            f"{total:g} seconds, without a pause of {silent:g}",
        ) from None


def is_closing(headers: Mapping[str, str], status: int) -> bool:
    """Return whether the connection is closed after this answer although a body is being sent.

    Nothing has been read of an announced body that is refused by 401 or 413. A client that waits
    for `100 Continue` sends no body before it has the answer.
    """
    sent = "content-length" in headers and "expect" not in headers
    asked = headers.get("connection", "").lower() == "close"
    return sent and (status == 401 or (status == 413 and asked))


async def discard_body(receive: Callable[[], Awaitable[Any]]) -> None:
    """Read a refused body before the answer is sent: a connection that is closed while bytes arrive
    is reset, and its client, such as urllib, does not see the answer."""
    discarded, more = 0, True
    with suppress(TimeoutError):
        async with asyncio.timeout(DISCARD_SECONDS):
            while more and discarded < DISCARDED_BYTES:
                async with asyncio.timeout(DISCARD_SILENCE):
                    message = await receive()
                discarded += len(message.get("body", b""))
                more = message.get("more_body", False)


def _too_large(most: int) -> RequestError:
    return RequestError(
        413, f"the body is larger than {most / 1e6:g} MB: send the texts in several requests"
    )
