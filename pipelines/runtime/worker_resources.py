"""The cores and GPUs that the workers of a job request from the nodes of Ray."""

from __future__ import annotations

from contextlib import nullcontext

from cotbert_core.errors import counted
from pipelines.runtime.cores import available_cores
from pipelines.runtime.placement import Node, place_workers
from pipelines.runtime.progress import say
from pipelines.runtime.ray_session import names_cluster, ray_runs, ray_session


def cpus_per_worker(workers: int, *, on_gpus: bool = False) -> int:
    """Return the number of cores of each of `workers` that share the nodes' cores evenly.

    on_gpus: count only the nodes that have GPUs.
    """
    return place_workers(live_nodes(), workers, on_gpus=on_gpus).threads


def live_nodes() -> list[Node]:
    """Return the live nodes that run tasks, without Ray this machine.

    A head node may have no cores for tasks.
    """
    if not ray_runs():
        from cotbert_core.training.devices import usable_gpus

        return [Node(available_cores(), usable_gpus())]
    import ray

    alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    lent = [Node(int(node.get("CPU", 0)), int(node.get("GPU", 0))) for node in alive]
    return [node for node in lent if node.cpus]


def has_gpus() -> bool:
    """Return whether a job's workers have GPUs: in the Ray session, at RAY_ADDRESS, or here."""
    with ray_session() if names_cluster() else nullcontext():
        return any(node.gpus for node in live_nodes())


def worker_pool(
    workers: int | None, shards: int | None = None, *, on_gpus: bool = True
) -> tuple[int, dict[str, float], int]:
    """Return the number of actors, the resources that each requests from Ray, and its threads.

    shards: upper limit of the number of actors. on_gpus: whether the actors compute on GPUs if
    the cluster has any. The actors together request all cores but one, which is left for the task
    that feeds them. They still compute on all cores, since that task only sends numbers.
    """
    nodes = live_nodes()
    placed = place_workers(nodes, workers, shards, on_gpus=on_gpus)
    if placed.idle_gpus and placed.workers == workers:  # not the limit, which they cannot exceed
        gpus = sum(node.gpus for node in nodes)
        use = "uses" if placed.workers == 1 else "use"
        say(
            f"note: {counted(placed.workers, 'worker')} {use} {gpus - placed.idle_gpus} of {gpus} "
            f"GPUs: a multiple of {gpus} workers uses them all"
        )
    resources = {"num_cpus": placed.cpus}
    if placed.gpus:
        resources["num_gpus"] = placed.gpus
    return placed.workers, resources, placed.threads
