"""Run the training workers, and restart them when one of them dies.

Several workers run under Ray Train; a single worker trains in a process that later runs can reuse.

A run continues from its last checkpoint when a worker or a node is lost. It ends at once after a
failure that a restart cannot fix (a non-finite loss, a full disk).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cotbert_core.errors import counted
from cotbert_core.settings import TrainSettings
from cotbert_core.training.checkpoints import begin_attempt, checkpoints
from cotbert_core.training.memory import return_gpu_memory
from pipelines.runtime import ray_private
from pipelines.runtime.progress import say
from pipelines.runtime.stop_signals import restored_signal_handlers
from pipelines.runtime.training_capacity import gpus_there, takes_gpus, workers_now
from pipelines.runtime.worker_resources import cpus_per_worker
from pipelines.storage.output_folder import CONTINUE
from pipelines.training.failures import cause, is_loss, lacked_resources
from pipelines.training.training_run import CHECKPOINTS, TrainingRun
from pipelines.training.worker_process import WorkerError, WorkerProcess, worker_process

# Maximum number of restarts without a new checkpoint in between.
RESTARTS = 3
# Ray counts a lost node's resources for about 15 s after the loss. A run that may continue with
# fewer workers stops waiting for the lost ones after this many seconds.
START_TIMEOUT, START_SECONDS = "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", 30


class TrainingError(RuntimeError):
    """A run failed after its start; the exit status is 1."""


@contextmanager
def begun_process(settings: TrainSettings, kept: WorkerProcess | None) -> Iterator[WorkerProcess]:
    """Yield the process of a run with one worker, which starts its imports.

    kept: a process that outlives the run; None for a new one that ends with the block. A run with
    several workers ends it, since it holds the cores, or a GPU, that they need.
    """
    with worker_process(kept) as process:
        if settings.workers == 1:
            on_gpus = takes_gpus(settings, gpus_there())
            process.start(_resources(_cpus(settings, 1, on_gpus), on_gpus))
        else:
            process.end()
        yield process


def fit(training: TrainingRun, messages: Any, process: WorkerProcess) -> None:
    """Run the workers to the last step; raise TrainingError if they cannot reach it."""
    restarts, before = 0, _done(training)
    on_gpus = _on_gpus(training.settings)
    return_gpu_memory()
    if training.settings.min_workers is not None:
        os.environ[START_TIMEOUT] = str(START_SECONDS)
    while True:
        workers = workers_now(training.settings, on_gpus)
        attempt = begin_attempt(training.checkpoints)
        try:
            with restored_signal_handlers():  # Ray Train does not remove its handler of SIGINT
                _run_workers(training, workers, on_gpus, attempt, messages, process)
            return
        # SystemExit: Ray Train's answer to Ctrl-C, after it has stopped the workers.
        except (SystemExit, KeyboardInterrupt):
            raise KeyboardInterrupt(CONTINUE) from None
        except _errors_of_workers() as error:
            ray_private.release_cores(messages)
            if lacked_resources(error):  # the workers did not start, so no worker was lost
                say(f"still waiting for resources for {counted(workers, 'worker')}")
                continue
            done = _done(training)
            restarts = 1 if done > before else restarts + 1
            before = done
            if not is_loss(error) or restarts > RESTARTS:
                raise TrainingError(cause(error)) from error
            say(
                f"warning: {cause(error)}: continuing from "
                f"{f'the checkpoint of step {done}' if done else 'the beginning'}"
            )


def _errors_of_workers() -> tuple[type[Exception], ...]:
    """Return the types of errors that a failed attempt raises."""
    from ray.exceptions import RayActorError
    from ray.train import TrainingFailedError

    return TrainingFailedError, RayActorError, WorkerError


def _done(training: TrainingRun) -> int:
    """Return the step of the newest checkpoint, or 0."""
    return max((checkpoint.step for checkpoint in checkpoints(training.checkpoints)), default=0)


def _on_gpus(settings: TrainSettings) -> bool:
    """Return whether all attempts train on GPUs; a run that loses GPUs waits for them."""
    gpus = gpus_there()
    on_gpus = takes_gpus(settings, gpus)
    if gpus and not on_gpus and settings.gpus_per_worker is None:
        workers = counted(settings.workers, "worker")
        say(f"warning: {workers} and {counted(gpus, 'GPU')}: training on CPU cores")
    return on_gpus


def _run_workers(
    training: TrainingRun,
    workers: int,
    on_gpus: bool,
    attempt: str,
    messages: Any,
    process: WorkerProcess,
) -> None:
    """Run an attempt to its end."""
    cpus = _cpus(training.settings, workers, on_gpus)
    job = {"run": training, "cpus": cpus, "attempt": attempt, "messages": messages}
    # A run that has lost its other workers stays with Ray Train, which waits for a limited time.
    if training.settings.workers == 1:
        process.train(job, _resources(cpus, on_gpus))
    else:
        _trainer(training, job, workers, on_gpus).fit()


def _cpus(settings: TrainSettings, workers: int, on_gpus: bool) -> int:
    return settings.cpus_per_worker or cpus_per_worker(workers, on_gpus=on_gpus)


def _resources(cpus: int, on_gpus: bool) -> dict[str, float]:
    return {"num_cpus": cpus, "num_gpus": int(on_gpus)}


def _trainer(training: TrainingRun, job: dict[str, Any], workers: int, on_gpus: bool) -> Any:
    """Return Ray Train's trainer of the workers.

    Checkpoints are not reported to Ray Train, which copies them file by file. With NO_UPLOAD it
    still writes a list of them, and a start fails if a kill truncated that list, or if it names a
    checkpoint that we have since removed.
    """
    import ray.train

    from pipelines.training.process_group import LoopbackTorchConfig
    from pipelines.training.worker import ray_train_worker

    return ray_private.trainer(
        job["messages"],
        ray_train_worker,
        train_loop_config=job,
        torch_config=LoopbackTorchConfig(),
        scaling_config=ray.train.ScalingConfig(
            num_workers=workers,
            use_gpu=on_gpus,
            resources_per_worker={"CPU": job["cpus"]},
        ),
        run_config=ray.train.RunConfig(
            storage_path=str(training.output),
            name=CHECKPOINTS,
            # `fit` handles the loss of a worker; Ray Train would restart the same run forever.
            failure_config=ray.train.FailureConfig(controller_failure_limit=0),
        ),
    )
