"""Ray Train's part of a run: where workers run, and what is done when one of them dies.

A run goes on by itself from its last checkpoint when a worker or a node is lost; with what no
restart can mend (a loss that is no number, a full disk) it ends at once.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cotbert_core.checkpoints import checkpoints
from cotbert_core.evaluation import Pairs
from cotbert_core.settings import TrainSettings
from pipelines.progress import say
from pipelines.ray_session import cpus_per_worker

CHECKPOINTS = "checkpoints"
# Restarts without a new checkpoint in between, after which the run ends.
RESTARTS = 3
# A node that is replaced is back in minutes; then a run that may goes on with fewer workers.
NODE_SECONDS, POLL_SECONDS = 180.0, 2.0


class TrainingError(RuntimeError):
    """A run that failed after it had begun: exit status 1."""


@dataclass(frozen=True)
class Job:
    """judged: whether a sweep says after every dev check if the run may go on; callbacks: of Ray
    Train, for a sweep that listens; part_rows: of each part of a corpus that is streamed; profile:
    the folder for one."""

    settings: TrainSettings
    corpus: Path
    dev: dict[str, Pairs]
    output: Path
    judged: bool = False
    callbacks: tuple[Any, ...] = ()
    part_rows: tuple[int, ...] | None = None
    profile: Path | None = None

    @property
    def checkpoints(self) -> Path:
        return self.output / CHECKPOINTS


def fit(job: Job, mailbox: Any) -> None:
    """Run the workers to the last step; TrainingError when they cannot get there."""
    import ray.train

    restarts, before = 0, _done(job)
    while True:
        workers = workers_now(job.settings)
        try:
            _trainer(job, workers, mailbox).fit()
            return
        except ray.train.TrainingFailedError as error:
            done = _done(job)
            restarts = 1 if done > before else restarts + 1
            before = done
            if not is_loss(error) or restarts > RESTARTS:
                raise TrainingError(_cause(error)) from error
            say(
                f"warning: {_cause(error)}: going on from "
                f"{f'the checkpoint of step {done}' if done else 'the beginning'}"
            )
        except SystemExit:  # Ray Train's answer to Ctrl-C, after it has stopped the workers
            raise KeyboardInterrupt("the same command with --resume goes on") from None


def _done(job: Job) -> int:
    """The step of the newest checkpoint."""
    return max((checkpoint.step for checkpoint in checkpoints(job.checkpoints)), default=0)


def workers_now(settings: TrainSettings, patience: float = NODE_SECONDS) -> int:
    """As many workers as the settings say; when the cluster has had no room for them for so many
    seconds, the most there is room for that divide the batch, if the settings allow so few."""
    if settings.min_workers is None:
        return settings.workers
    until = time.monotonic() + patience
    while (room := _room(settings.cpus_per_worker or 1)) < settings.workers:
        if time.monotonic() >= until:
            fitting = fewer_workers(settings, room)
            if fitting:
                say(f"warning: the cluster has room for {room} workers: going on with {fitting}")
                return fitting
            say(f"waiting for {settings.min_workers} workers: the cluster has room for {room}")
            until = time.monotonic() + patience
        time.sleep(POLL_SECONDS)
    return settings.workers


def fewer_workers(settings: TrainSettings, room: int) -> int | None:
    """The most of at most `room` workers that share the global batch evenly."""
    least = settings.min_workers or settings.workers
    counts = range(min(room, settings.workers), least - 1, -1)
    return next((n for n in counts if settings.batch_size % n == 0), None)


def _room(cpus: int) -> int:
    """Workers of so many cores that the nodes which are alive could hold."""
    import ray

    alive = (node["Resources"] for node in ray.nodes() if node["Alive"])
    return sum(int(resources.get("CPU", 0)) // cpus for resources in alive)


def _trainer(job: Job, workers: int, mailbox: Any) -> Any:
    """Ray Train's own checkpoints are not used: it copies a folder file by file, and knows of it
    only half a second later, so that a kill cost two intervals."""
    import ray.train
    from ray.train.torch import TorchTrainer

    from pipelines.train_worker import train_worker

    gpus = int(ray.cluster_resources().get("GPU", 0))
    if 0 < gpus < workers:
        say(f"warning: {workers} workers and {gpus} GPUs: training on CPU cores")
    cpus = job.settings.cpus_per_worker or cpus_per_worker(workers)
    return TorchTrainer(
        train_worker,
        train_loop_config={
            "settings": job.settings.model_dump(),
            "corpus": str(job.corpus),
            "part_rows": job.part_rows,
            "dev": job.dev,
            "cpus": cpus,
            "mailbox": mailbox,
            "judged": str(job.output) if job.judged else None,
            "reported": bool(job.callbacks),
            "checkpoints": str(job.checkpoints),
            "profile": str(job.profile) if job.profile else None,
        },
        scaling_config=ray.train.ScalingConfig(
            num_workers=workers,
            use_gpu=gpus >= workers,
            resources_per_worker={"CPU": cpus},
        ),
        run_config=ray.train.RunConfig(
            storage_path=str(job.output), name=CHECKPOINTS, callbacks=list(job.callbacks)
        ),
    )


def is_loss(error: Any) -> bool:
    """Whether a process or a node was lost; the other workers then fail too, since they wait for
    the lost one."""
    return any(_died(failure) for failure in _failures(error).values())


def _failures(error: Any) -> dict[int, Any]:
    """By rank."""
    return getattr(error, "worker_failures", None) or {}


def _died(failure: Any) -> bool:
    from ray.exceptions import RayActorError

    # Ray Train hands a death on inside an error of its own.
    return isinstance(getattr(failure, "health_check_failure", failure), RayActorError)


def _cause(error: Any) -> str:
    """What the first worker that was lost, or else that failed, says."""
    failures = _failures(error)
    for worker in sorted(failures, key=lambda rank: (not _died(failures[rank]), rank)):
        if _died(failures[worker]):
            return f"worker {worker}: its process died (killed, out of memory, or a lost node)"
        lines = str(failures[worker]).strip().splitlines()
        return f"worker {worker}: {lines[-1] if lines else failures[worker]!r}"
    return str(error).strip().splitlines()[-1]
