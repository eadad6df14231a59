"""The replicas of `cotbert serve`, started, called and ended through Ray Serve."""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from cotbert_core.errors import UserError, counted
from cotbert_core.training.memory import return_gpu_memory
from pipelines.runtime.progress import is_verbose
from pipelines.runtime.ray_session import names_cluster
from pipelines.runtime.training_capacity import may_change
from pipelines.runtime.worker_resources import live_nodes, worker_pool
from pipelines.serving.encoder_replica import EncoderReplica
from pipelines.serving.options import ServeOptions

# Concurrent batches of a replica. On a GPU the next one is transferred while one is encoded. On a
# CPU that would only take cores from the encoder and halve the batches.
BATCHES_ON_GPU, BATCHES_ON_CPU = 2, 1
HEALTH_SECONDS = 5.0


class Replicas:
    """The running replicas of an application of Ray Serve.

    count: number of replicas started. concurrent: number of batches that they take at a time.
    """

    def __init__(self, handle: Any, application_name: str, count: int, concurrent: int) -> None:
        self._handle, self._application = handle, application_name
        self.count, self.concurrent = count, concurrent
        self._asking: asyncio.Future[int] | None = None

    def batch_tokens(self) -> int:
        """Return the default number of tokens of a batch."""
        return int(self._handle.batch_tokens.remote().result())

    async def encode(self, texts: list[str], queries: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return the (N, D) vectors and (N,) numbers of tokens of N texts.

        queries: put the model's prompt for queries before the texts.
        """
        vectors, tokens = await self._handle.encode.remote(texts, queries)
        return vectors, tokens

    async def running(self) -> int:
        """Return the number of running replicas, 0 if Ray does not answer."""
        if self._asking is None or self._asking.done():
            # A daemon thread: serve.status never returns if Ray has died, and the threads of
            # asyncio.to_thread are joined when the service ends.
            self._asking = asyncio.get_running_loop().create_future()
            threading.Thread(target=self._ask, args=(self._asking,), daemon=True).start()
        try:
            async with asyncio.timeout(HEALTH_SECONDS):
                return await asyncio.shield(self._asking)
        except TimeoutError:
            return 0

    def _ask(self, answer: asyncio.Future[int]) -> None:
        from ray import serve

        number = 0
        with suppress(Exception):  # Ray raises errors of many types if the cluster is gone
            application = serve.status().applications.get(self._application)
            deployments = application.deployments.values() if application else ()
            number = sum(found.replica_states.get("RUNNING", 0) for found in deployments)
        with suppress(RuntimeError):  # the loop has ended
            answer.get_loop().call_soon_threadsafe(answer.set_result, number)


def check_replicas(replicas: int | None) -> None:
    """Raise UserError if there are more replicas than cores and more than GPUs.

    Each opens the model in a process of its own, which takes minutes if many share a core.
    The nodes are those of the Ray session, or this machine; a cluster without a session is not
    checked.
    """
    if replicas is None or may_change():
        return
    nodes = live_nodes()
    cores, gpus = sum(node.cpus for node in nodes), sum(node.gpus for node in nodes)
    if replicas > max(cores, gpus):
        raise UserError(
            f"replicas is {replicas}, which would share {counted(cores, 'core')}: give at most "
            f"{max(cores, gpus)}"
        )


@contextmanager
def running_replicas(options: ServeOptions) -> Iterator[Replicas]:
    """Start the replicas on the Ray session, and end them after the block."""
    from ray import serve

    check_replicas(options.replicas)
    return_gpu_memory()
    _quieten()
    count, resources, threads = worker_pool(options.replicas, on_gpus=options.backend == "torch")
    batches = BATCHES_ON_GPU if "num_gpus" in resources else BATCHES_ON_CPU
    # A unique name, since a cluster may have other applications.
    name = f"cotbert-{secrets.token_hex(4)}"
    serve.start(proxy_location="Disabled")
    _quieten()
    try:
        deployment = serve.deployment(EncoderReplica).options(
            name="encoder",
            num_replicas=count,
            max_ongoing_requests=batches,
            ray_actor_options=resources,
        )
        handle = serve.run(deployment.bind(options, threads), name=name, route_prefix=None)
        yield Replicas(handle, name, count, batches * count)
    finally:
        # A private Ray ends as a whole; a cluster keeps Serve if others use it.
        if names_cluster():
            with suppress(Exception):
                serve.delete(name)
                if not serve.status().applications:
                    serve.shutdown()


def _quieten() -> None:
    logging.getLogger("ray.serve").setLevel(logging.INFO if is_verbose() else logging.ERROR)
