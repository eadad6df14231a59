"""Requests per minute, shared by the threads that send them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


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
