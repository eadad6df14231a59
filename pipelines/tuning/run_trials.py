"""Ray Tune's part of a sweep: trials side by side, and bad ones stopped."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from cotbert_core.errors import UserError
from cotbert_core.evaluation import Pairs
from cotbert_core.settings import TrainSettings
from pipelines.recording.tracking import DEV_SPEARMAN, end_run
from pipelines.runtime.progress import say
from pipelines.runtime.ray_log import only_in_log
from pipelines.storage.output_folder import earlier_run
from pipelines.training.resources import gpus_there, takes_gpus
from pipelines.tuning.options import Stopping
from pipelines.tuning.progress import STEP, Watch
from pipelines.tuning.state import ENDED, FAILED_FILE, UNFINISHED, status_of
from pipelines.tuning.trial import TRIAL, Sweep, run_trial
from pipelines.tuning.trial_plan import Plan

# Ray Tune's own files, beside the trials for as long as a sweep runs; nothing is read from them.
TUNE_FOLDER = "tune"


def run_trials(
    sweep: Sweep,
    plan: Plan,
    dev: dict[str, Pairs],
    steps: Callable[[TrainSettings], int],
    stopping: Stopping | None,
    asked: int | None,
) -> None:
    """Run the trials that are not done; what becomes of them is in their folders.

    steps: of a run with these settings. asked: trials at a time, None for as many as have room.
    """
    folder = Path(sweep.folder)
    _forget_failures(folder)
    try:
        _fit(sweep, plan, dev, steps, stopping, asked)
    except KeyboardInterrupt:
        _end_trials(folder)
        raise KeyboardInterrupt("the same command goes on") from None


def _fit(
    sweep: Sweep,
    plan: Plan,
    dev: dict[str, Pairs],
    steps: Callable[[TrainSettings], int],
    stopping: Stopping | None,
    asked: int | None,
) -> None:
    # Its own answer to Ctrl-C ends a sweep as if it were done.
    os.environ.setdefault("TUNE_DISABLE_SIGINT_HANDLER", "1")
    # A trial that was killed after its last step has nothing more to report when it goes on, and
    # Ray Tune would end the whole sweep for the missing dev score.
    os.environ.setdefault("TUNE_DISABLE_STRICT_METRIC_CHECKING", "1")
    import ray.tune

    from pipelines.tuning.plan_searcher import PlanSearcher

    folder = Path(sweep.folder)
    largest = max(plan.possible, key=lambda settings: settings.workers)
    at_once, cpus = share_out(
        largest.workers, largest.cpus_per_worker, asked, takes_gpus(largest, gpus_there())
    )
    turns = PlanSearcher(plan, folder, cpus)
    if not turns.left:
        return
    # The trial itself only waits: its workers ask for the cores, and it for as good as nothing.
    task = ray.tune.with_resources(
        ray.tune.with_parameters(run_trial, sweep=sweep, dev=dev), {"memory": 1}
    )
    tuner = ray.tune.Tuner(
        task,
        tune_config=ray.tune.TuneConfig(
            search_alg=turns,
            num_samples=turns.left,
            scheduler=_scheduler(stopping, plan, folder, steps),
            # Ray Tune does not count what a trial's own workers take.
            max_concurrent_trials=at_once,
            reuse_actors=True,  # what a trial has imported serves the next one
            trial_dirname_creator=lambda trial: f"{trial.config[TRIAL]}_{trial.trial_id}",
        ),
        run_config=ray.tune.RunConfig(
            name=TUNE_FOLDER,
            storage_path=str(folder.parent),
            callbacks=[Watch(plan, folder, steps)],
            verbose=1 if sweep.verbose else 0,
        ),
    )
    # A line of ours says what failed.
    with nullcontext() if sweep.verbose else only_in_log("ray.tune", folder.parent):
        tuner.fit()


def _end_trials(folder: Path) -> None:
    """What was under way ends with the sweep, in MLflow too; a trial that goes on opens its run
    again."""
    for trial in folder.iterdir():
        if status_of(trial) == UNFINISHED and (run_id := earlier_run(trial)):
            end_run(run_id, "KILLED")


def _forget_failures(folder: Path) -> None:
    """What failed is tried again, from its last checkpoint."""
    for mark in folder.glob(f"*/{FAILED_FILE}"):
        say(f"trial {mark.parent.name} failed before and is tried again")
        mark.unlink()


def _scheduler(
    stopping: Stopping | None, plan: Plan, folder: Path, steps: Callable[[TrainSettings], int]
) -> Any:
    from ray.tune.schedulers import FIFOScheduler

    if stopping is None:
        return FIFOScheduler()
    from pipelines.tuning.asha import CooperativeASHA

    longest = max(steps(settings) for settings in plan.possible)
    scheduler = CooperativeASHA(
        folder,
        lambda name: steps(plan.trials[name].settings),
        time_attr=STEP,
        metric=DEV_SPEARMAN,
        mode="max",
        grace_period=stopping.grace,
        reduction_factor=stopping.factor,
        max_t=max(longest, stopping.grace),
    )
    for name in plan.trials:
        if status_of(folder / name) in ENDED:
            scheduler.replay(name)
    return scheduler


def share_out(
    workers: int, cpus: int | None, asked: int | None, on_gpus: bool = False
) -> tuple[int, int | None]:
    """(trials at a time, cores of each worker or None for its even share) for this cluster.

    UserError when more trials are asked for than have room: their workers would wait for ever for
    cores that other waiting trials hold.
    """
    import ray

    resources = ray.cluster_resources()
    gpus, cores = int(resources.get("GPU", 0)), int(resources.get("CPU", 1))
    room = gpus // workers if on_gpus else cores // (workers * (cpus or 1))
    if asked is not None and not 1 <= asked <= max(room, 1):
        raise UserError(
            f"max_concurrent is {asked} and there is room for {max(room, 1)} trials of {workers} "
            f"worker(s) with {cpus or 1} core(s): give at most so many"
        )
    if on_gpus or cpus is not None:
        return asked or max(room, 1), cpus
    # Without a share of its own a trial takes all cores; several share them evenly.
    return (asked, max(1, cores // (asked * workers))) if asked and asked > 1 else (1, None)
