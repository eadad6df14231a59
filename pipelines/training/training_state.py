"""The state of a run on one worker, and how a checkpoint keeps it and brings it back."""

from __future__ import annotations

import random
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch
from torch import nn

from cotbert_core.methods import Method
from cotbert_core.settings import TrainSettings
from cotbert_core.training.checkpoint_writer import CheckpointWriter
from cotbert_core.training.checkpoints import newest
from cotbert_core.training.devices import current_device
from cotbert_core.training.distributed import gather_objects, rank, world_size
from cotbert_core.training.precision import has_fast_bf16
from cotbert_core.training.sampling import total_steps
from cotbert_core.training.step_timer import section
from pipelines.training.data import Data
from pipelines.training.dev_sets import DevSets
from pipelines.training.metrics_writer import MetricsWriter

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
    dev: DevSets
    messages: Any
    """The queue of warnings to the driver."""
    folder: Path
    """The folder of the checkpoints."""
    writer: CheckpointWriter
    """Writes this attempt's checkpoints, on rank 0."""
    metrics: MetricsWriter
    """Writes the metrics file, on rank 0."""
    early_stopping: Path | None = None
    """Folder of a sweep's decisions on whether the run continues; None: there is no sweep."""
    measured_peak_flops: float = float("nan")
    """FLOPs a second of all workers' matrix products together."""
    step: int = 0

    @property
    def total(self) -> int:
        return total_steps(len(self.corpus), self.settings)


def log_metrics(training: Training, values: dict[str, float]) -> None:
    """Append numbers of this step to the metrics file, on rank 0."""
    if rank() == 0:
        training.metrics.append({"step": training.step, **values})


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
        "random": states,
    }
    last = training.step == training.total
    for left in reversed(range(LAST_TRIES if last else 1)):
        try:
            with section("checkpoint"):
                training.metrics.sync()
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
    _warn(training, f"{error}; continuing without it")


def restore(training: Training) -> None:
    """Continue from the newest whole checkpoint, if there is one, and drop the rows after it."""
    with warnings.catch_warnings(record=True) as damaged:
        warnings.simplefilter("always")
        # Rank 0 looks, since it takes reading the file; all must take the same.
        found = gather_objects(newest(training.folder) if rank() == 0 else None)[0]
    for warning in damaged:
        _warn(training, str(warning.message))
    if found is not None:
        state = found.load()
        training.method.load_state_dict(state["method"])
        training.optimizer.load_state_dict(state["optimizer"])
        training.step = state["step"]
        _restore_random(training, state["random"])
    if rank() == 0:
        training.writer.check_attempt()
        training.metrics.start(training.step)


def _restore_random(training: Training, states: list[dict[str, torch.Tensor]]) -> None:
    if len(states) != world_size():  # a node was lost: the saved random states do not fit
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


def warn_slow_precision(training: Training) -> None:
    """Warn of bf16 on a device that is slower in it: on a CPU with AVX2 alone a product of matrices
    took 33 times as long as in fp32."""
    if training.settings.precision == "bf16" and not has_fast_bf16(current_device()):
        _warn(
            training,
            f"precision is bf16, in which this {current_device().type} is slower than in fp32, "
            "without fast instructions many times; leave precision at auto",
        )


def _warn(training: Training, text: str) -> None:
    """Send a warning to the driver and wait until it has arrived. It is a message, since most
    warnings are about a full disk, which takes no line of a file."""
    if rank() == 0:
        ray.get(training.messages.put.remote([{"warning": text}]))


def _random_states() -> dict[str, torch.Tensor]:
    """Return the states of the random generators that dropout uses, by device."""
    states = {"cpu": torch.get_rng_state()}
    if current_device().type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state()
    return states
