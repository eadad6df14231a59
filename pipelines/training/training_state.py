"""The state of a run on one worker, and how a checkpoint keeps it and brings it back."""

from __future__ import annotations

import random
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch
from torch import nn

from cotbert_core.evaluation import Pairs
from cotbert_core.methods import Method
from cotbert_core.settings import TrainSettings
from cotbert_core.training.checkpoint_writer import CheckpointWriter
from cotbert_core.training.checkpoints import newest
from cotbert_core.training.devices import current_device
from cotbert_core.training.distributed import gather_objects, rank, world_size
from cotbert_core.training.sampling import total_steps
from cotbert_core.training.step_timer import section
from pipelines.runtime.metrics_queue import MetricRow
from pipelines.training.data import Data

# The last checkpoint of a run, which its model is made from, is tried so often.
LAST_TRIES, WAIT_SECONDS = 3, 5.0


@dataclass
class Training:
    """All that a checkpoint holds, and what steps need."""

    settings: TrainSettings
    method: Method
    model: nn.Module
    optimizer: torch.optim.Optimizer
    corpus: Data
    dev: dict[str, Pairs]
    mailbox: Any
    folder: Path
    """Of the checkpoints."""
    writer: CheckpointWriter
    """Of this attempt; only rank 0 writes."""
    reported: bool = False
    """Whether a sweep hears of every dev check."""
    judged: Path | None = None
    """Where a sweep says whether the run may go on; None: nobody asks."""
    measured_peak_flops: float = float("nan")
    """FLOPs a second of all workers' matrix products together."""
    step: int = 0
    told: list[MetricRow] = field(default_factory=list)
    """All news so far. A checkpoint keeps it, since what a kill caught on its way is told again."""

    @property
    def total(self) -> int:
        return total_steps(len(self.corpus), self.settings)


def tell(training: Training, values: dict[str, float]) -> None:
    """Numbers of this step, to the driver."""
    news = {"step": training.step, "total": training.total, "values": values}
    training.told.append(news)
    _send(training, [news])


def _send(training: Training, news: list[MetricRow]) -> None:
    if rank() == 0:
        ray.get(training.mailbox.put.remote(news))


def save(training: Training, score: float) -> None:
    """Write a checkpoint of everything that the next step depends on, on every worker.

    Where storage refuses a checkpoint, the run warns and continues with the one before. The last
    step's is tried LAST_TRIES times and then raises OSError.
    """
    states = gather_objects(_random_states())
    if rank() != 0:
        return
    finish_saving(training)
    state = {
        "step": training.step,
        "method": training.method.state_dict(),
        "optimizer": training.optimizer.state_dict(),
        "told": training.told,
        "random": states,
    }
    last = training.step == training.total
    for left in reversed(range(LAST_TRIES if last else 1)):
        try:
            with section("checkpoint"):
                training.writer.write(training.step, score, state)
                if last:
                    training.writer.wait()
            return
        except OSError as error:
            if last and not left:
                raise
            _warn_refused(training, error)
            time.sleep(WAIT_SECONDS if left else 0)


def finish_saving(training: Training) -> None:
    """Wait for the checkpoint that is still being written; a refused one is a warning."""
    try:
        with section("checkpoint"):
            training.writer.wait()
    except OSError as error:
        _warn_refused(training, error)


def _warn_refused(training: Training, error: OSError) -> None:
    _warn(training, f"{error}; going on without it")


def restore(training: Training) -> None:
    """Go on from the newest whole checkpoint, when the run has one."""
    with warnings.catch_warnings(record=True) as damaged:
        warnings.simplefilter("always")
        # Rank 0 looks, since it takes reading the file; all must take the same.
        found = gather_objects(newest(training.folder) if rank() == 0 else None)[0]
    for warning in damaged:
        _warn(training, str(warning.message))
    if found is None:
        return
    state = found.load()
    training.method.load_state_dict(state["method"])
    training.optimizer.load_state_dict(state["optimizer"])
    training.step, training.told = state["step"], state["told"]
    _restore_random(training, state["random"])
    _send(training, training.told)


def _restore_random(training: Training, states: list[dict[str, torch.Tensor]]) -> None:
    if len(states) != world_size():  # a node was lost: no worker's dropout can go on
        seed_all(hash((training.settings.seed, training.step, world_size(), rank())) % 2**63)
        return
    own = states[rank()]
    torch.set_rng_state(own["cpu"])
    if "cuda" in own and current_device().type == "cuda":
        torch.cuda.set_rng_state(own["cuda"])


def seed_all(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def _warn(training: Training, text: str) -> None:
    _send(training, [{"warning": text}])


def _random_states() -> dict[str, torch.Tensor]:
    """What dropout draws from next."""
    states = {"cpu": torch.get_rng_state()}
    if current_device().type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state()
    return states
