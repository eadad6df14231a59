"""The replicas of `cotbert serve`: started, asked and ended by Ray Serve."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from pipelines.runtime.worker_resources import worker_pool
from pipelines.serving.encoder_replica import EncoderReplica, ReplicaTask
from pipelines.serving.options import ServeOptions

# Batches that a replica has at a time. On a GPU the next one is on its way while one is encoded. On
# a CPU that would only take cores from the encoder, and batches would be half as large.
BATCHES_ON_GPU, BATCHES_ON_CPU = 2, 1
HEALTH_SECONDS = 5.0


class Replicas:
    """The running replicas of an application of Ray Serve.

    count: number that was started. concurrent: number of batches that they take at a time.
    """

    def __init__(self, handle: Any, application_name: str, count: int, concurrent: int) -> None:
        self._handle, self._application = handle, application_name
        self.count, self.concurrent = count, concurrent

    def batch_tokens(self) -> int:
        """Return how many tokens a batch has by default."""
        return int(self._handle.batch_tokens.remote().result())

    async def encode(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the (N, D) vectors and (N,) numbers of tokens of N texts, from a free replica."""
        vectors, tokens = await self._handle.encode.remote(texts)
        return vectors, tokens

    async def running(self) -> int:
        """Return the number of replicas that run, 0 if Ray does not answer."""
        from ray import serve

        try:
            async with asyncio.timeout(HEALTH_SECONDS):
                status = await asyncio.to_thread(serve.status)
        except Exception:  # Ray has errors of many kinds for a cluster that has gone
            return 0
        application = status.applications.get(self._application)
        deployments = application.deployments.values() if application else ()
        return sum(found.replica_states.get("RUNNING", 0) for found in deployments)


@contextmanager
def running_replicas(model: str, options: ServeOptions, verbose: bool) -> Iterator[Replicas]:
    """Start the replicas of a model on the Ray session, and end them after the block.

    options.backend: the library that was chosen, not auto.
    """
    from ray import serve

    _quieten(verbose)
    count, resources, threads = worker_pool(options.replicas, on_gpus=options.backend == "torch")
    batches = BATCHES_ON_GPU if "num_gpus" in resources else BATCHES_ON_CPU
    how = options.precision, threads, options.backend
    task = ReplicaTask(model, options.template, options.readout, *how)
    # Of its own name, since a cluster may have other applications.
    name = f"cotbert-{secrets.token_hex(4)}"
    serve.start(proxy_location="Disabled")
    _quieten(verbose)
    try:
        deployment = serve.deployment(EncoderReplica).options(
            name="encoder",
            num_replicas=count,
            max_ongoing_requests=batches,
            ray_actor_options=resources,
        )
        handle = serve.run(deployment.bind(task), name=name, route_prefix=None)
        yield Replicas(handle, name, count, batches * count)
    finally:
        # A private Ray ends as a whole; a cluster keeps Serve if others use it.
        if os.environ.get("RAY_ADDRESS", "local") != "local":
            with suppress(Exception):
                serve.delete(name)
                if not serve.status().applications:
                    serve.shutdown()


def _quieten(verbose: bool) -> None:
    logging.getLogger("ray.serve").setLevel(logging.INFO if verbose else logging.ERROR)
