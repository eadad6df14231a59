"""Assign cores, GPUs and fractions of a GPU to the actors of a job, from what the nodes have.

If any node has a GPU, every actor requests a GPU or a fraction of one from Ray. Without a request
an actor would see all GPUs of its machine, and all actors would use the first one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # workers that only prepare text never load torch
    import torch

# Ray counts resources in units of 1/10,000.
UNITS = 10_000


@dataclass(frozen=True)
class Node:
    """The cores (at least one) and GPUs that a live node offers to Ray."""

    cpus: int
    gpus: int = 0


@dataclass(frozen=True)
class Placement:
    """The number of actors of a job and the resources of each.

    workers: number of actors. cpus, gpus: resources that each requests from Ray. threads: number
    of threads of each. idle_gpus: number of GPUs without an actor.
    """

    workers: int
    cpus: float
    gpus: float
    threads: int
    idle_gpus: int = 0


def place_workers(
    nodes: Sequence[Node],
    workers: int | None = None,
    shards: int | None = None,
    *,
    on_gpus: bool = True,
) -> Placement:
    """Return how `workers` actors share the nodes.

    workers: number of actors, by default one per GPU, or per node if there are no GPUs. shards:
    upper limit of that number. on_gpus: whether the actors compute on GPUs if there are any.
    """
    nodes = nodes or [Node(1)]  # a cluster whose nodes are still starting
    gpus = sum(node.gpus for node in nodes) if on_gpus else 0
    workers = workers or gpus or len(nodes)
    workers = min(workers, shards or workers)
    cores = [node.cpus for node in nodes]
    if not gpus:
        share, on_one_node = cpu_share(cores, workers), -(-workers // len(nodes))
        return Placement(workers, share, 0.0, max(1, int(share), min(cores) // on_one_node))
    on_one_gpu = -(-workers // gpus)
    most = [node.gpus * on_one_gpu for node in nodes]
    share = cpu_share(cores, workers, most)
    threads = (n // min(workers, m) for n, m in zip(cores, most, strict=True) if m)
    return Placement(
        workers,
        share,
        (UNITS // on_one_gpu) / UNITS,
        max(1, int(share), min(threads)),
        # Ray fills one GPU with fractions before it takes the next.
        gpus - -(-workers // on_one_gpu),
    )


def cpu_share(cores: Sequence[int], workers: int, most: Sequence[int] | None = None) -> float:
    """Return the number of cores that each actor requests.

    It is the largest number with which all actors fit and, wherever Ray places them, some node has
    a whole core left for the task that feeds them; 0 if there is none. cores: number of cores of
    each node. most: number of actors that fit on each node's GPUs, None for no limit.
    """
    most = most or [workers] * len(cores)
    total = sum(node for node, limit in zip(cores, most, strict=True) if limit)
    # A node without GPUs has all its cores for the feeding task.
    even = (total if 0 in most else total - 1) / workers
    # Ray rounds: 0.66667 of three actors on three cores would become 0.6667 and leave 0.9999.
    part = max(math.floor(even * UNITS) / UNITS, 0.01)
    for share in (*map(float, range(int(even), 0, -1)), part):
        capacity, filled = 0.0, 0.0
        for node, limit in zip(cores, most, strict=True):
            capacity += min(limit, math.floor(node / share + 1e-9))
            # This many actors leave less than one core of the node, if they fit on its GPUs.
            needed = math.floor((node - 1) / share + 1e-9) + 1
            filled += needed if needed <= limit else math.inf
        if capacity >= workers and filled > workers:
            return share
    return 0.0


def use_own_device() -> torch.device:
    """Select the GPU that Ray gave this actor, or the CPU, and return it.

    An actor with a GPU sees only that GPU; an actor without one sees all GPUs of its node.
    """
    import ray
    import torch

    from cotbert_core.training.devices import use_device

    has_gpu = bool(ray.get_gpu_ids()) and torch.cuda.is_available()
    return use_device("cuda:0" if has_gpu else "cpu")
