"""Ray Train's trainer without the helper that a killed driver would leave on the cluster for ever.

The helper gives the workers' cores back when their controller dies alone. It is detached from the
job, and once the controller is gone its thread cannot end its process (ray 2.60): 190 MB on the
head for every killed driver. Here the driver does that, and what it reserved ends with its job.
"""

from __future__ import annotations

from typing import Any

import ray
from ray.train.torch import TorchTrainer
from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback
from ray.train.v2._internal.execution.callback import WorkerGroupCallback
from ray.util.placement_group import remove_placement_group


class Trainer(TorchTrainer):  # type: ignore[misc]
    def _create_default_callbacks(self) -> list[Any]:
        callbacks = super()._create_default_callbacks()
        return [c for c in callbacks if not isinstance(c, PlacementGroupCleanerCallback)]


class TellCores(WorkerGroupCallback):  # type: ignore[misc]
    """Tells the driver by the mailbox which cores the workers hold."""

    def __init__(self, mailbox: Any) -> None:
        self._mailbox = mailbox

    def after_worker_group_start(self, worker_group: Any) -> None:
        state = worker_group.get_worker_group_state()
        ray.get(self._mailbox.hold.remote(state.placement_group_handle.placement_group))


def give_back_cores(mailbox: Any) -> None:
    """After a controller's death: its workers die with it, and their cores are still reserved."""
    group = ray.get(mailbox.held.remote())
    if group is not None:
        remove_placement_group(group)
