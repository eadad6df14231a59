"""The resources that a command requests, and the check that a cluster has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cluster.server import Node
from cotbert_core.errors import UserError
from pipelines.training.resources import room_on

if TYPE_CHECKING:
    from cotbert_core.settings import TrainSettings


@dataclass(frozen=True)
class Need:
    """The number of workers that must run at the same time, and the cores and GPUs of each."""

    workers: int
    cpus: int
    gpus: int = 0


def need_of(given: Mapping[str, Any], trainings: Sequence[TrainSettings]) -> Need | None:
    """Return the largest request of a command's trainings; None for a command without trainings."""
    trials = given.get("max_concurrent", 1)
    needs = [
        Need(s.workers * trials, s.cpus_per_worker or 1, s.gpus_per_worker or 0) for s in trainings
    ]
    return max(needs, key=lambda n: (n.workers * n.gpus, n.workers * n.cpus), default=None)


def check_room(command: str, need: Need | None, nodes: Sequence[Node], address: str) -> None:
    """Raise UserError if the workers of a command would never get enough cores or GPUs."""
    if need is None:
        return
    resources = [{"CPU": node.cpus, "GPU": node.gpus} for node in nodes]
    if room_on(resources, need.cpus, need.gpus) >= need.workers:
        return
    cpus = ", ".join(f"{node.cpus:g}" for node in nodes)
    asked = f"{need.cpus} core(s) {f'and {need.gpus} GPU ' if need.gpus else ''}each"
    raise UserError(
        f"{command} needs {need.workers} workers at a time with {asked}, and "
        f"the {len(nodes)} nodes of {address} have {cpus} CPUs and "
        f"{sum(node.gpus for node in nodes):g} GPUs in all: give fewer --workers, or --may-grow "
        "where the cluster adds nodes by itself"
    )
