"""The number of training workers that fit on a cluster, and whether they train on GPUs."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from cotbert_core.errors import UserError, counted
from cotbert_core.settings import TrainSettings
from pipelines.runtime.placement import Node
from pipelines.runtime.progress import say
from pipelines.runtime.ray_session import names_cluster, ray_runs
from pipelines.runtime.worker_resources import live_nodes

POLL_SECONDS = 2.0
# Set if the cluster autoscales: no job is then refused for a lack of resources.
MAY_GROW = "COTBERT_MAY_GROW"


def check_capacity(settings: TrainSettings) -> None:
    """Raise UserError if the workers would wait for cores or GPUs that the nodes do not have.

    The nodes are those of the Ray session, or this machine; a cluster without a session is not
    checked. A run with min_workers can start with that number.
    """
    if may_change():
        return
    nodes = live_nodes()
    cpus = settings.cpus_per_worker or 1
    gpus = int(takes_gpus(settings, sum(node.gpus for node in nodes)))
    capacity = worker_capacity(nodes, cpus, gpus)
    if capacity >= (settings.min_workers or settings.workers):
        return
    there, more = "this machine has", "name a cluster by RAY_ADDRESS"
    if ray_runs():
        there = "the nodes have"
        more = f"if the cluster autoscales, `cotbert submit --may-grow` or {MAY_GROW}=1"
    cores = ", ".join(str(node.cpus) for node in nodes) or "0"
    raise UserError(
        f"workers is {settings.workers} with {cpus} core(s) {'and a GPU ' if gpus else ''}each, "
        f"and {there} {cores} core(s) and {sum(node.gpus for node in nodes)} GPU(s), enough for "
        f"{capacity}: give fewer workers{', --device cpu' if gpus else ''}, or {more}"
    )


def check_concurrent(settings: TrainSettings, max_concurrent: int | None) -> None:
    """Raise UserError if `max_concurrent` such trainings do not fit; None for as many as do.

    The nodes are those of `check_capacity`.
    """
    if max_concurrent is not None and not may_change():
        on_gpus = takes_gpus(settings, gpus_there())
        trainings_that_fit(settings.workers, settings.cpus_per_worker, max_concurrent, on_gpus)


def trainings_that_fit(
    workers: int, cpus: int | None, max_concurrent: int | None, on_gpus: bool
) -> int:
    """Return the number of trainings that fit on the nodes at a time.

    Raises UserError if `max_concurrent` is more: their workers would deadlock, waiting for cores
    that the workers of other trainings hold.
    """
    capacity = max(1, worker_capacity(live_nodes(), cpus or 1, int(on_gpus)) // workers)
    if max_concurrent is not None and not 1 <= max_concurrent <= capacity:
        raise UserError(
            f"max_concurrent is {max_concurrent} and there is capacity for {capacity} training(s) "
            f"of {workers} worker(s) with {cpus or 1} core(s){' and a GPU' if on_gpus else ''}: "
            f"give 1 to {capacity}"
        )
    return capacity


def may_change() -> bool:
    """Return whether the nodes are not known: a cluster without a session, or one that grows."""
    return MAY_GROW in os.environ or (names_cluster() and not ray_runs())


def gpus_there() -> int:
    """Return the number of GPUs of the Ray session, or of this machine before a session."""
    return sum(node.gpus for node in live_nodes())


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
    per_worker = settings.cpus_per_worker or 1, int(on_gpus)
    while (capacity := worker_capacity(live_nodes(), *per_worker)) < settings.workers:
        fitting = fewer_workers(settings, capacity)
        if fitting and time.monotonic() >= until:
            room = counted(capacity, "worker")
            say(f"warning: the cluster has room for {room}: continuing with {fitting}")
            return fitting
        if capacity != reported:
            say(
                f"waiting for resources for {counted(settings.workers, 'worker')}: the cluster has "
                f"enough for {capacity}"
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


def worker_capacity(nodes: Sequence[Node], cpus: int, gpus: int) -> int:
    """Return the number of workers with `cpus` cores and `gpus` GPUs that fit on the nodes."""
    return sum(min(node.cpus // cpus, node.gpus // gpus if gpus else node.cpus) for node in nodes)
