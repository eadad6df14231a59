"""The resources that a command requests, and the check that a cluster has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cluster.server import Node
from cotbert_core.errors import UserError
from pipelines.training.resources import worker_capacity

if TYPE_CHECKING:
    from cotbert_core.settings import TrainSettings


@dataclass(frozen=True)
class ResourceRequest:
    """The number of workers that must run at the same time, and the cores and GPUs of each."""

    workers: int
    cpus: int
    gpus: int = 0


def largest_request(
    given: Mapping[str, Any], trainings: Sequence[TrainSettings]
) -> ResourceRequest | None:
    """Return the largest request of a command's trainings; None for a command without trainings."""
    trials = given.get("max_concurrent", 1)
    requests = [
        ResourceRequest(s.workers * trials, s.cpus_per_worker or 1, s.gpus_per_worker or 0)
        for s in trainings
    ]
    return max(requests, key=lambda n: (n.workers * n.gpus, n.workers * n.cpus), default=None)


def check_capacity(
    command: str, request: ResourceRequest | None, nodes: Sequence[Node], address: str
) -> None:
    """Raise UserError if the workers of a command would never get enough cores or GPUs."""
    if request is None:
        return
    resources = [{"CPU": node.cpus, "GPU": node.gpus} for node in nodes]
    if worker_capacity(resources, request.cpus, request.gpus) >= request.workers:
        return
    cpus = ", ".join(f"{node.cpus:g}" for node in nodes)
    each = f"{request.cpus} core(s) {f'and {request.gpus} GPU ' if request.gpus else ''}each"
    raise UserError(
        f"{command} needs {request.workers} workers at a time with {each}, and "
        f"the {len(nodes)} nodes of {address} have {cpus} CPUs and "
        f"{sum(node.gpus for node in nodes):g} GPUs in all: give fewer --workers, or --may-grow "
        "if the cluster autoscales"
    )
