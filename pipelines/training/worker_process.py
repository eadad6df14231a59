"""A process for runs with one worker, reused by later runs of the same command.

Ray Train starts a controller and a worker for each run, which both import their libraries: 10 of
the 12 seconds from the start of a run to step 0 (4 layers x 256, two cores), which a reused process
saves. A single worker needs no process group, so a plain actor is enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any


class WorkerError(RuntimeError):
    """The run failed, or its process died. worker_failures: by rank, as in Ray Train's errors."""

    def __init__(self, failure: Exception) -> None:
        super().__init__(str(failure))
        self.worker_failures = {0: failure}


class SingleWorker:
    """The actor that trains one run after another."""

    def load(self) -> None:
        """Import the modules that a training needs."""
        import_module("pipelines.training.worker")

    def train(self, job: dict[str, Any]) -> None:
        from cotbert_core.training.memory import return_freed_memory
        from pipelines.runtime.placement import use_own_device
        from pipelines.training.worker import train_worker

        use_own_device()
        train_worker(job)
        return_freed_memory()


class WorkerProcess:
    """A process that starts with the first run, or before it, and ends with `end`."""

    def __init__(self) -> None:
        self._actor: Any = None
        self._resources: dict[str, float] = {}

    def start(self, resources: dict[str, float]) -> None:
        """Start the process if there is none with these resources (num_cpus and num_gpus)."""
        import ray

        if self._actor is not None and self._resources != resources:
            self.end()
        if self._actor is None:
            # The trial that starts it has no core to share.
            options = {"scheduling_strategy": "DEFAULT", **resources}
            self._actor = ray.remote(SingleWorker).options(**options).remote()
            self._actor.load.remote()
            self._resources = resources

    def train(self, job: dict[str, Any], resources: dict[str, float]) -> None:
        """Train a run; raise WorkerError if it fails. resources: as for `start`."""
        import ray
        from ray.exceptions import RayError

        self.start(resources)
        try:
            ray.get(self._actor.train.remote(job))
        except BaseException as error:
            # Ending the process frees its memory and, after Ctrl-C, ends the run.
            self.end()
            if isinstance(error, RayError):
                raise WorkerError(error) from error
            raise

    def end(self) -> None:
        """End the process, if there is one."""
        import ray

        if self._actor is not None and ray.is_initialized():
            ray.kill(self._actor)
        self._actor = None


@contextmanager
def worker_process(kept: WorkerProcess | None = None) -> Iterator[WorkerProcess]:
    """Yield `kept`, or a new process that ends with the block."""
    if kept is not None:
        yield kept
        return
    process = WorkerProcess()
    try:
        yield process
    finally:
        process.end()
