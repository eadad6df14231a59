"""The number of training workers that fit on a cluster, and whether they train on GPUs."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from cotbert_core.errors import UserError
from cotbert_core.settings import TrainSettings
from pipelines.runtime.progress import say

POLL_SECONDS = 2.0
# Set if the cluster autoscales: no job is then refused for a lack of resources.
MAY_GROW = "COTBERT_MAY_GROW"


def check_gpus(settings: TrainSettings) -> None:
    """Raise UserError if there are fewer GPUs than workers that need one, which would hang."""
    if settings.gpus_per_worker != 1 or MAY_GROW in os.environ:
        return
    there = gpus_there()
    if there < settings.workers:
        raise UserError(
            f"gpus_per_worker is 1 and workers is {settings.workers}, and there are {there} GPUs: "
            f"give fewer workers, --device cpu (gpus_per_worker=0) to train on CPU cores, or set "
            f"{MAY_GROW}=1 if the cluster autoscales"
        )


def gpus_there() -> int:
    """Return the number of GPUs of the Ray session, or of this machine before a session."""
    import ray

    if ray.is_initialized():
        return int(ray.cluster_resources().get("GPU", 0))
    import torch

    return torch.cuda.device_count()


def takes_gpus(settings: TrainSettings, there: int) -> bool:
    """Return whether each worker trains on a GPU."""
    if settings.gpus_per_worker is not None:
        return settings.gpus_per_worker == 1
    return there >= settings.workers


def workers_now(settings: TrainSettings, on_gpus: bool = False) -> int:
    """Wait until the cluster has room for `settings.workers`, and return that number.

    After node_seconds, if min_workers is set, it is the largest number that fits and divides the
    batch size.
    """
    if settings.min_workers is None:
        return settings.workers
    reported, until = -1, time.monotonic() + settings.node_seconds
    while (capacity := _capacity(settings, on_gpus)) < settings.workers:
        fitting = fewer_workers(settings, capacity)
        if fitting and time.monotonic() >= until:
            say(f"warning: the cluster has room for {capacity} workers: continuing with {fitting}")
            return fitting
        if capacity != reported:
            say(
                f"waiting for resources for {settings.workers} workers: the cluster has enough for "
                f"{capacity}"
            )
            reported = capacity
        time.sleep(POLL_SECONDS)
    return settings.workers


def fewer_workers(settings: TrainSettings, capacity: int) -> int | None:
    """Return the largest number of workers, at most `capacity`, that divides the global batch.

    None if it would be below min_workers.
    """
    least = settings.min_workers or settings.workers
    counts = range(min(capacity, settings.workers), least - 1, -1)
    return next((n for n in counts if settings.batch_size % n == 0), None)


def _capacity(settings: TrainSettings, on_gpus: bool) -> int:
    """Return the number of workers that fit on the live nodes."""
    import ray

    alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return worker_capacity(alive, settings.cpus_per_worker or 1, int(on_gpus))


def worker_capacity(nodes: Sequence[Mapping[str, Any]], cpus: int, gpus: int) -> int:
    """Return the number of workers with `cpus` cores and `gpus` GPUs that fit on the nodes."""
    wanted = {"CPU": cpus, **({"GPU": gpus} if gpus else {})}
    return sum(min(int(node.get(k, 0)) // n for k, n in wanted.items()) for node in nodes)
