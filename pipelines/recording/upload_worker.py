"""Send the records of an offline queue, with pauses while the store fails or is slow."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pipelines.reading.data_folder import UNTRACKED_FILE
from pipelines.recording.offline_queue import OfflineQueue
from pipelines.recording.records import Record, send
from pipelines.recording.store import connect, no_answer
from pipelines.runtime.progress import say

# With this pause a restarted server is found soon, and a server that is down only costs a refused
# connection every 10 s.
PAUSE_SECONDS = 10.0
# After a call of more than a second nothing is sent for ten times its duration, so a hanging or
# slow server costs a job at most a tenth of its time.
SLOW_SECONDS, SPARING = 1.0, 10.0
# Maximum seconds that a job spends sending waiting records at once: during the job, and at its end.
SEND_SECONDS, LAST_SECONDS = 10.0, 60.0


class UploadWorker:
    """Send the records of a queue to the store. clock: returns seconds."""

    def __init__(
        self,
        queue: OfflineQueue,
        client: Any = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.queue = queue
        self._client, self._clock = client, clock
        self._next = float("-inf")
        self._warned = False
        self.answers = True
        """Whether the last call did not fail."""

    def send(self, record: Record) -> None:
        """Add a record to the queue, then send all waiting records, except during a pause.

        Raises OSError if the queue cannot be written and the store does not take the record either.
        """
        try:
            self.queue.add(record)
        except OSError:  # the disk is full
            if self.queue.waiting() or not self._sent_alone(record):
                raise
            return
        if self._clock() >= self._next:
            self._deliver(SEND_SECONDS)

    def _sent_alone(self, record: Record) -> bool:
        """Send a record that is not in the queue; return whether the store has it."""
        try:
            self._client = self._client or connect()
            run_id = self.queue.run_id_of(self._client, record["run"])
            if run_id is not None:
                send(self._client, run_id, record, self.queue.folder)
            return run_id is not None
        except Exception:  # the caller says that the record is lost
            return False

    def flush(self) -> None:
        """Send all waiting records at the end of a job, even during a pause."""
        if not self.queue.empty:
            self._deliver(LAST_SECONDS)

    def pause(self, error: Exception, seconds: float) -> None:
        """Begin a pause after a call failed in `seconds`; show a warning the first time."""
        self.answers = False
        self._next = self._clock() + max(PAUSE_SECONDS, SPARING * seconds)
        if not self._warned:
            self._warned = True
            # Without the queue's folder, which a job renames when it is complete.
            say(
                f"warning: {no_answer(error)}; {UNTRACKED_FILE} in the job's output stores the "
                "records until it does"
            )

    def _deliver(self, limit: float) -> None:
        started = self._clock()
        try:
            self._client = self._client or connect()
            while self.queue.send_first(self._client) and self._clock() - started < limit:
                pass
        except Exception as error:  # a failure of the store must not end the job
            self.pause(error, self._clock() - started)
            return
        self.answers = True
        seconds = self._clock() - started
        self._next = self._clock() + (SPARING * seconds if seconds > SLOW_SECONDS else 0.0)
