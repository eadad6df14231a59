"""Assign cores, GPUs and fractions of a GPU to the actors of a job, from what the nodes have.

Where any node has a GPU, every actor asks Ray for a GPU or a fraction of one. An actor that asked
for none would find all GPUs of its machine visible, and all of them would take the first.
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
    """Cores and GPUs that a living node lends to Ray; it has at least one core."""

    cpus: int
    gpus: int = 0


@dataclass(frozen=True)
class Placement:
    """The number of actors of a job and the resources of each.

    workers: number of actors. cpus, gpus: what each requests of Ray. threads: threads that each
    computes with. idle_gpus: GPUs without an actor.
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

    workers: None for one a GPU, or one a node where there are no GPUs. shards: more actors than
    these are not started. on_gpus: whether the actors compute on GPUs where there are any.
    """
    gpus = sum(node.gpus for node in nodes) if on_gpus else 0
    workers = workers or gpus or len(nodes)
    workers = min(workers, shards or workers)
    cores = [node.cpus for node in nodes]
    if not gpus:
        on_one_node = -(-workers // len(nodes))
        return Placement(workers, cpu_share(cores, workers), 0.0, max(1, min(cores) // on_one_node))
    on_one_gpu = -(-workers // gpus)
    most = [node.gpus * on_one_gpu for node in nodes]
    threads = (n // min(workers, m) for n, m in zip(cores, most, strict=True) if m)
    return Placement(
        workers,
        cpu_share(cores, workers, most),
        (UNITS // on_one_gpu) / UNITS,
        max(1, min(threads)),
        # Ray fills one GPU with fractions before it takes the next.
        gpus - -(-workers // on_one_gpu),
    )


def cpu_share(cores: Sequence[int], workers: int, most: Sequence[int] | None = None) -> float:
    """Return how many cores each actor asks for: as many as leave room for all actors and, wherever
    Ray puts them, a whole core on some node for the task that feeds them. 0 where only parts of a
    core would be left.

    cores: of each node. most: actors that each node's GPUs take (None: any number).
    """
    most = most or [workers] * len(cores)
    there = sum(node for node, limit in zip(cores, most, strict=True) if limit)
    # A node without GPUs keeps its cores for the feeding task.
    even = (there if 0 in most else there - 1) / workers
    # Ray rounds: 0.66667 of three actors on three cores would become 0.6667 and leave 0.9999.
    part = max(math.floor(even * UNITS) / UNITS, 0.01)
    for share in (*map(float, range(int(even), 0, -1)), part):
        room, filled = 0.0, 0.0
        for node, limit in zip(cores, most, strict=True):
            room += min(limit, math.floor(node / share + 1e-9))
            # So many actors leave less than one core there, unless its GPUs are taken before.
            needed = math.floor((node - 1) / share + 1e-9) + 1
            filled += needed if needed <= limit else math.inf
        if room >= workers and filled > workers:
            return share
    return 0.0


def use_own_device() -> torch.device:
    """Make an actor of a pool compute on the GPU that Ray gave it, or on the CPU, and return which.

    Ray shows an actor with a GPU that GPU alone, and an actor without one all GPUs of its node.
    """
    import ray
    import torch

    from cotbert_core.training.devices import use_device

    has_gpu = bool(ray.get_gpu_ids()) and torch.cuda.is_available()
    return use_device("cuda:0" if has_gpu else "cpu")
