"""News from a training worker to the driver, wherever in the cluster the worker is.

Rank 0 puts small dicts; the driver's thread takes them, so that progress, the metrics file and
MLflow are written in one place and a slow tracking store never holds up a training step.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

POLL_SECONDS = 0.5
MetricRow = dict[str, Any]


class MetricsQueue:
    """The actor between the two."""

    def __init__(self) -> None:
        self._news: list[MetricRow] = []
        self._cores: Any = None

    def put(self, news: list[MetricRow]) -> None:
        self._news += news

    def take(self) -> list[MetricRow]:
        news, self._news = self._news, []
        return news

    def hold(self, cores: Any) -> None:
        """What the workers have reserved, so that somebody knows when they cannot give it back."""
        self._cores = cores

    def held(self) -> Any:
        return self._cores


class MetricsReceiver:
    """The driver's end: `with Channel(handle) as mailbox`; `handle` gets all news in turn."""

    def __init__(self, handle: Callable[[list[MetricRow]], None]) -> None:
        self._handle = handle
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._fault: BaseException | None = None

    def __enter__(self) -> Any:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        # With the driver, whatever becomes of the other nodes.
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        mailbox = ray.remote(num_cpus=0, scheduling_strategy=here)(MetricsQueue)
        self._mailbox = mailbox.remote()
        self._thread.start()
        return self._mailbox

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        import ray

        self._stop.set()
        self._thread.join()
        if kind is None:
            self._drain()
        ray.kill(self._mailbox)
        if kind is None and self._fault is not None:
            raise self._fault

    def _listen(self) -> None:
        while not self._stop.wait(POLL_SECONDS):
            try:
                self._drain()
            except BaseException as fault:  # told in the driver's own thread at the end
                self._fault = fault
                return

    def _drain(self) -> None:
        import ray

        news = ray.get(self._mailbox.take.remote())
        if news:
            self._handle(news)
