"""When what waits in an outbox is sent: at once, and seldom to a store that fails or is slow."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pipelines.recording.offline_queue import OfflineQueue
from pipelines.recording.store import Record, connect, reason, shown_uri
from pipelines.runtime.progress import say
from pipelines.storage.output_folder import UNTRACKED_FILE

# A server that was started again is found soon, and one that is away costs a refused connection
# every 10 s, which nobody notices.
PAUSE_SECONDS = 10.0
# A call that took longer than a second is one to be spared: for ten times as long nothing is sent,
# so that a server that hangs or crawls costs a job a tenth of its time.
SLOW_SECONDS, SPARING = 1.0, 10.0
# Of what has piled up, as much as this goes while the job waits, and this at its end.
SEND_SECONDS, LAST_SECONDS = 10.0, 60.0


class UploadWorker:
    """Takes records to the store of an outbox's runs; clock: seconds that pass."""

    def __init__(
        self,
        outbox: OfflineQueue,
        client: Any = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.outbox = outbox
        self._client, self._clock = client, clock
        self._next = float("-inf")
        self._warned = False

    def send(self, record: Record) -> None:
        """Keep the record; then send all that wait, unless the store is to be spared."""
        self.outbox.add(record)
        if self._clock() >= self._next:
            self._deliver(SEND_SECONDS)

    def last(self) -> None:
        """The job ends: send what waits, whatever the store did before."""
        if not self.outbox.empty:
            self._deliver(LAST_SECONDS)

    def failed(self, error: Exception, seconds: float) -> None:
        """The store did not answer for so long: a warning the first time, and a pause."""
        self._next = self._clock() + max(PAUSE_SECONDS, SPARING * seconds)
        if not self._warned:
            self._warned = True
            say(
                f"warning: MLflow at {shown_uri()} did not answer ({reason(error)}); "
                f"{self.outbox.folder / UNTRACKED_FILE} keeps what it misses"
            )

    def _deliver(self, limit: float) -> None:
        started = self._clock()
        try:
            self._client = self._client or connect()
            while self.outbox.send_first(self._client) and self._clock() - started < limit:
                pass
        except Exception as error:  # whatever the store does, the job goes on
            self.failed(error, self._clock() - started)
            return
        seconds = self._clock() - started
        self._next = self._clock() + (SPARING * seconds if seconds > SLOW_SECONDS else 0.0)
