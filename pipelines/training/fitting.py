"""Ray Train's part of a run: where workers run, and what is done when one of them dies.

A run goes on by itself from its last checkpoint when a worker or a node is lost; with what no
restart can mend (a loss that is no number, a full disk) it ends at once.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cotbert_core.settings import TrainSettings
from cotbert_core.training.checkpoints import begin_attempt, checkpoints
from pipelines.runtime.progress import say
from pipelines.runtime.stop_signals import kept_signals
from pipelines.runtime.worker_resources import cpus_per_worker
from pipelines.training.dev_sets import DevSets
from pipelines.training.failures import cause, is_loss, lacked_room
from pipelines.training.metrics_log import METRICS_FILE
from pipelines.training.resources import gpus_there, takes_gpus, workers_now

CHECKPOINTS = "checkpoints"
# Restarts without a new checkpoint in between, after which the run ends.
RESTARTS = 3
# A lost node counts as room until Ray knows of its loss, about 15 s later. A run that may have
# fewer workers asks for less after so many seconds; another has nothing else to ask for.
START_TIMEOUT, ROOM_SECONDS = "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", 30


class TrainingError(RuntimeError):
    """A run that failed after it had begun: exit status 1."""


@dataclass(frozen=True)
class Job:
    """The training run that `fit` performs.

    early_stopping: whether a sweep decides after every dev check if the run continues. callbacks:
    Ray Train's callbacks, for a sweep that receives reports. part_rows: rows of each part of a
    streamed corpus. profile: folder of the profile.
    """

    settings: TrainSettings
    corpus: Path
    dev: DevSets
    output: Path
    early_stopping: bool = False
    callbacks: tuple[Any, ...] = ()
    part_rows: tuple[int, ...] | None = None
    profile: Path | None = None

    @property
    def checkpoints(self) -> Path:
        return self.output / CHECKPOINTS


def fit(job: Job, messages: Any) -> None:
    """Run the workers to the last step; raise TrainingError if they cannot reach it."""
    from ray.exceptions import RayActorError
    from ray.train import TrainingFailedError

    from pipelines.runtime import ray_private

    restarts, before = 0, _done(job)
    on_gpus = _on_gpus(job.settings)
    if job.settings.min_workers is not None:
        os.environ[START_TIMEOUT] = str(ROOM_SECONDS)
    while True:
        workers = workers_now(job.settings, on_gpus)
        attempt = begin_attempt(job.checkpoints)
        try:
            with kept_signals():  # Ray Train leaves a handler of SIGINT behind
                _trainer(job, workers, on_gpus, attempt, messages).fit()
            return
        except (TrainingFailedError, RayActorError) as error:
            ray_private.release_cores(messages)
            if lacked_room(error):  # they did not begin, so nothing was lost
                say(f"still waiting for room for {workers} workers")
                continue
            done = _done(job)
            restarts = 1 if done > before else restarts + 1
            before = done
            if not is_loss(error) or restarts > RESTARTS:
                raise TrainingError(cause(error)) from error
            say(
                f"warning: {cause(error)}: continuing from "
                f"{f'the checkpoint of step {done}' if done else 'the beginning'}"
            )
        # SystemExit: Ray Train's answer to Ctrl-C, after it has stopped the workers.
        except (SystemExit, KeyboardInterrupt):
            raise KeyboardInterrupt("give the same command with --resume to continue") from None


def _done(job: Job) -> int:
    """Return the step of the newest checkpoint, 0 without one."""
    return max((checkpoint.step for checkpoint in checkpoints(job.checkpoints)), default=0)


def _on_gpus(settings: TrainSettings) -> bool:
    """Return whether all attempts train on GPUs; a run that loses GPUs waits for them."""
    gpus = gpus_there()
    on_gpus = takes_gpus(settings, gpus)
    if gpus and not on_gpus and settings.gpus_per_worker is None:
        say(f"warning: {settings.workers} workers and {gpus} GPUs: training on CPU cores")
    return on_gpus


def _trainer(job: Job, workers: int, on_gpus: bool, attempt: str, messages: Any) -> Any:
    """Return Ray Train's trainer of the workers.

    Checkpoints are not reported to Ray Train. It copies a reported one file by file; with
    NO_UPLOAD it still writes a list of them that a kill can cut short, and a start with such a
    list, or with one that names a checkpoint we have removed since, ends in an error.
    """
    import ray.train

    from pipelines.runtime.ray_private import trainer
    from pipelines.training.process_group import LoopbackTorchConfig
    from pipelines.training.worker import train_worker

    cpus = job.settings.cpus_per_worker or cpus_per_worker(workers, on_gpus=on_gpus)
    return trainer(
        messages,
        train_worker,
        train_loop_config={
            "settings": job.settings.model_dump(),
            "corpus": str(job.corpus),
            "part_rows": job.part_rows,
            "dev": job.dev,
            "cpus": cpus,
            "messages": messages,
            "metrics": str(job.output / METRICS_FILE),
            "early_stopping": str(job.output) if job.early_stopping else None,
            "reported": bool(job.callbacks),
            "checkpoints": str(job.checkpoints),
            "profile": str(job.profile) if job.profile else None,
            "attempt": attempt,
        },
        torch_config=LoopbackTorchConfig(),
        scaling_config=ray.train.ScalingConfig(
            num_workers=workers,
            use_gpu=on_gpus,
            resources_per_worker={"CPU": cpus},
        ),
        run_config=ray.train.RunConfig(
            storage_path=str(job.output),
            name=CHECKPOINTS,
            # What to do about a loss is decided here; Ray Train would try the same again for ever.
            failure_config=ray.train.FailureConfig(controller_failure_limit=0),
            callbacks=list(job.callbacks),
        ),
    )
