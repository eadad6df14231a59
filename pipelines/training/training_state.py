"""The state of a run on one worker, saved to and restored from checkpoints."""

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
from torch.profiler import record_function

from cotbert_core.methods import Method
from cotbert_core.settings import TrainSettings
from cotbert_core.training.checkpoint_writer import CheckpointWriter
from cotbert_core.training.checkpoints import newest
from cotbert_core.training.devices import current_device
from cotbert_core.training.distributed import gather_objects, rank, world_size
from cotbert_core.training.precision import has_fast_bf16
from cotbert_core.training.sampling import total_steps
from pipelines.training.data import Data
from pipelines.training.dev_sets import DevSets
from pipelines.training.metrics_writer import MetricsWriter

# Number of attempts to write the last checkpoint, and the pause between them.
LAST_TRIES, WAIT_SECONDS = 3, 5.0


@dataclass
class Training:
    """The state that a checkpoint saves, and the objects that steps need."""

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
    """The writer of this attempt's checkpoints, used on rank 0."""
    metrics: MetricsWriter
    """The writer of the metrics file, used on rank 0."""
    early_stopping: Path | None = None
    """The folder of a sweep's early-stopping decisions; None without a sweep."""
    measured_peak_flops: float = float("nan")
    """Peak FLOPs per second of matrix products, summed over the workers."""
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

    If writing fails, the run continues with a warning and the previous checkpoint. The last one is
    tried LAST_TRIES times and then raises OSError.
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
            with record_function("checkpoint"):
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
    """Wait for the checkpoint that is being written; show a warning if writing fails."""
    try:
        with record_function("checkpoint"):
            training.writer.wait()
    except OSError as error:
        _warn_refused(training, error)


def _warn_refused(training: Training, error: OSError) -> None:
    _warn(training, f"{error.strerror or error}; continuing without it")


def restore(training: Training) -> None:
    """Continue from the newest complete checkpoint, if any, and drop later metrics rows."""
    with warnings.catch_warnings(record=True) as damaged:
        warnings.simplefilter("always")
        # Only rank 0 validates the files, and all workers take the same checkpoint.
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
    if len(states) != world_size():  # a node was lost, and the random states do not match
        seed_all(hash((training.settings.seed, training.step, world_size(), rank())))
        return
    own = states[rank()]
    torch.set_rng_state(own["cpu"])
    if "cuda" in own and current_device().type == "cuda":
        torch.cuda.set_rng_state(own["cuda"])


def seed_all(seed: int) -> None:
    seed %= 2**63  # torch's limit
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def warn_slow_precision(training: Training) -> None:
    """Show a warning if bf16 is slower than fp32 on the device: on a CPU with AVX2 only, a matrix
    product took 33 times as long."""
    if training.settings.precision == "bf16" and not has_fast_bf16(current_device()):
        this = "GPU" if current_device().type == "cuda" else "CPU"
        _warn(
            training,
            f"precision is bf16, which is slower than fp32 on this {this}, many times without fast "
            "instructions: leave precision at auto",
        )


def _warn(training: Training, text: str) -> None:
    """Send a warning to the driver's queue, which works on a full disk, and wait for delivery."""
    if rank() == 0:
        ray.get(training.messages.put.remote([{"warning": text}]))


def _random_states() -> dict[str, torch.Tensor]:
    """Return the states of dropout's random generators by device."""
    states = {"cpu": torch.get_rng_state()}
    if current_device().type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state()
    return states
