"""Messages from Ray workers to the driver, wherever in the cluster the workers are.

It is for rare messages, such as warnings and counts of finished rows. It needs no disk, so it also
carries the warning that a disk is full. The numbers of a training go through its metrics file
(pipelines.training.metrics_writer).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pipelines.runtime.polling import polled

# An actor whose cluster is gone does not answer; the driver then ends without its last messages.
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
    """A queue for the workers while the block runs; `handle` gets their messages in order."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    # On the driver's node, so that the loss of another node loses no message.
    driver = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    queue = ray.remote(num_cpus=0, scheduling_strategy=driver)(MessageQueue).remote()

    def drain() -> None:
        if messages := ray.get(queue.take.remote(), timeout=ANSWER_SECONDS):
            handle(messages)

    try:
        with polled(drain):
            yield queue
    finally:
        ray.kill(queue)
