"""Ray Train's trainer, whose workers' cores the driver gives back after a failure.

Ray Train (2.60) keeps them reserved where a worker dies while the workers meet, and the next start
then waits for ever. Where the controller dies alone a helper of its own gives them back; detached
from the job as it is, and unable to end its own process, it stays on the cluster after every killed
driver, 190 MB of the head each time. Without it, what a killed driver had reserved ends with its
job.
"""

from __future__ import annotations

from typing import Any

import ray
from ray.train.torch import TorchTrainer
from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback
from ray.train.v2._internal.execution.callback import WorkerGroupCallback
from ray.util.placement_group import remove_placement_group


class Trainer(TorchTrainer):  # type: ignore[misc]
    """mailbox: of the driver, which is told of the cores before anything else can fail."""

    def __init__(self, mailbox: Any, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._mailbox = mailbox

    def _create_default_callbacks(self) -> list[Any]:
        callbacks = super()._create_default_callbacks()
        kept = [c for c in callbacks if not isinstance(c, PlacementGroupCleanerCallback)]
        return [TellCores(self._mailbox), *kept]


class TellCores(WorkerGroupCallback):  # type: ignore[misc]
    """Tells which cores the workers hold."""

    def __init__(self, mailbox: Any) -> None:
        self._mailbox = mailbox

    def after_worker_group_start(self, worker_group: Any) -> None:
        state = worker_group.get_worker_group_state()
        ray.get(self._mailbox.hold.remote(state.placement_group_handle.placement_group))


def give_back_cores(mailbox: Any) -> None:
    """Of the last start of the workers, which has failed; those that still live end with it."""
    group = ray.get(mailbox.held.remote())
    if group is not None:
        remove_placement_group(group)
