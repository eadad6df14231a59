"""A queue of messages from the Ray workers, on any node, to the driver.

It is for rare messages, such as warnings and counts of finished rows, and needs no disk, so it can
report that a disk is full. Training metrics go through a file (pipelines.training.metrics_writer).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pipelines.runtime.polling import polled

# An actor that is still starting, or whose cluster is gone, does not answer. The next call waits
# for the same answer; after the last one the driver ends without the last messages.
ANSWER_SECONDS = 10.0
Message = dict[str, Any]


class MessageQueue:
    """The actor between the workers and the driver."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._reservation: Any = None

    def put(self, messages: list[Message]) -> None:
        self._messages += messages

    def take(self) -> list[Message]:
        messages, self._messages = self._messages, []
        return messages

    def set_reservation(self, reservation: Any) -> None:
        """Keep the placement group of the workers, for when they cannot release it themselves."""
        self._reservation = reservation

    def reservation(self) -> Any:
        return self._reservation


@contextmanager
def message_queue(handle: Callable[[list[Message]], None]) -> Iterator[Any]:
    """Yield a queue for the workers; `handle` gets their messages in order during the block."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    # On the driver's node, so that the loss of another node loses no message.
    driver = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    queue = ray.remote(num_cpus=0, scheduling_strategy=driver)(MessageQueue).remote()

    asked: list[Any] = []  # the call that has not been answered, which holds its messages

    def drain() -> None:
        if not asked:
            asked.append(queue.take.remote())
        with suppress(ray.exceptions.GetTimeoutError):
            messages = ray.get(asked[0], timeout=ANSWER_SECONDS)
            asked.clear()
            if messages:
                handle(messages)

    try:
        with polled(drain):
            yield queue
    finally:
        ray.kill(queue)
