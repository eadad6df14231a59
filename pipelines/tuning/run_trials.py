"""Run the trials of a sweep with Ray Tune: several at a time, with early stopping."""

from __future__ import annotations

import os
import shutil
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import ray.tune
from ray.tune.schedulers import FIFOScheduler
from ray.tune.search import Searcher

from cotbert_core.settings import TrainSettings, override
from cotbert_core.training.memory import return_gpu_memory
from pipelines.recording.metric_names import DEV_SCORE
from pipelines.recording.tracking import end_run
from pipelines.runtime.placement import place_workers
from pipelines.runtime.progress import is_verbose, say
from pipelines.runtime.ray_log import only_in_log
from pipelines.runtime.training_capacity import gpus_there, takes_gpus, trainings_that_fit
from pipelines.runtime.worker_resources import live_nodes
from pipelines.storage.output_folder import CONTINUE, earlier_run
from pipelines.training.dev_sets import DevSets
from pipelines.tuning.asha import CooperativeASHA
from pipelines.tuning.options import Stopping
from pipelines.tuning.progress import ProgressCallback
from pipelines.tuning.state import ENDED, FAILED_FILE, UNFINISHED, status_of
from pipelines.tuning.trial import RUN_NAME, SETTINGS, STEP, TRIAL, Sweep, run_trial
from pipelines.tuning.trial_plan import TrialPlan

# The folder of Ray Tune's own files, which exists while a sweep runs; nothing is read from it.
TUNE_FOLDER = "tune"
# How often a trial is continued whose process died, as when its node is lost. One that fails by an
# error ends: it would fail again.
MAX_DEATHS = 3


def run_trials(
    sweep: Sweep,
    plan: TrialPlan,
    dev: DevSets,
    steps: Callable[[TrainSettings], int],
    stopping: Stopping | None,
    max_concurrent: int | None,
) -> None:
    """Run the trials that have not ended, which leave their outcome in their folders.

    steps: function from settings to number of steps. max_concurrent: maximum number of trials at a
    time, None for as many as fit.
    """
    folder = sweep.folder
    _forget_failures(folder)
    return_gpu_memory()
    try:
        _fit(sweep, plan, dev, steps, stopping, max_concurrent)
    except KeyboardInterrupt:
        end_trials(folder)
        raise KeyboardInterrupt(CONTINUE) from None
    shutil.rmtree(folder.parent / TUNE_FOLDER, ignore_errors=True)


def _fit(
    sweep: Sweep,
    plan: TrialPlan,
    dev: DevSets,
    steps: Callable[[TrainSettings], int],
    stopping: Stopping | None,
    max_concurrent: int | None,
) -> None:
    # With Ray Tune's own handler, a sweep that is interrupted by Ctrl-C would look complete.
    os.environ.setdefault("TUNE_DISABLE_SIGINT_HANDLER", "1")
    # A trial that was killed after its last step reports nothing when it continues, and Ray Tune
    # would end the whole sweep because of the missing dev score.
    os.environ.setdefault("TUNE_DISABLE_STRICT_METRIC_CHECKING", "1")
    folder = sweep.folder
    largest = max(plan.possible, key=lambda settings: settings.workers)
    at_once, cpus = allocate_resources(
        largest.workers, largest.cpus_per_worker, max_concurrent, takes_gpus(largest, gpus_there())
    )
    searcher = PlanSearcher(plan, folder, cpus)
    if not searcher.left:
        return
    # With successive halving most trials are stopped early: in a sweep whose rungs are a sixth and
    # a half of the steps, a third is what a trial makes on average.
    share = 1 / stopping.factor if stopping else 1.0
    # The trial's own process only waits, so it requests almost nothing; its workers request cores.
    task = ray.tune.with_resources(
        ray.tune.with_parameters(run_trial, sweep=sweep, dev=dev), {"memory": 1}
    )
    tuner = ray.tune.Tuner(
        task,
        tune_config=ray.tune.TuneConfig(
            search_alg=searcher,
            num_samples=searcher.left,
            scheduler=_scheduler(stopping, plan, folder, steps),
            # Ray Tune does not count the resources of a trial's workers.
            max_concurrent_trials=at_once,
            reuse_actors=True,  # the next trial reuses the imported modules
            trial_dirname_creator=lambda trial: f"{trial.config[TRIAL]}_{trial.trial_id}",
        ),
        run_config=ray.tune.RunConfig(
            name=TUNE_FOLDER,
            storage_path=str(folder.parent),
            callbacks=[ProgressCallback(plan, folder, steps, share)],
            failure_config=ray.tune.FailureConfig(max_failures=MAX_DEATHS),
            verbose=int(is_verbose()),
        ),
    )
    # The progress callback reports failures.
    with nullcontext() if is_verbose() else only_in_log("ray.tune", folder.parent):
        tuner.fit()


class PlanSearcher(Searcher):  # type: ignore[misc]
    """Suggest the known trials that have not ended, then new trials of the plan.

    cpus: number of cores of each worker. Ray Tune's reports are ignored: the outcome of a trial is
    read from its folder.
    """

    def __init__(self, plan: TrialPlan, folder: Path, cpus: int | None) -> None:
        super().__init__()
        self._plan, self._cpus = plan, cpus
        self._known = deque(
            trial for trial in plan.trials.values() if status_of(folder / trial.name) not in ENDED
        )
        self.left = len(self._known) + plan.total - len(plan.trials)

    def suggest(self, trial_id: str) -> Any:
        trial = self._known.popleft() if self._known else self._plan.grow()
        if trial is None:
            return Searcher.FINISHED
        settings = override(trial.settings, {"cpus_per_worker": self._cpus})
        run_name = f"{trial.name} {trial.description}"
        return {TRIAL: trial.name, SETTINGS: settings.model_dump(), RUN_NAME: run_name}

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None: ...

    def save(self, checkpoint_path: str) -> None: ...

    def restore(self, checkpoint_path: str) -> None: ...


def end_trials(folder: Path) -> None:
    """End the MLflow runs of unfinished trials; a trial that continues reopens its run."""
    for trial in folder.iterdir() if folder.is_dir() else ():
        if status_of(trial) == UNFINISHED and (run_id := earlier_run(trial)):
            end_run(run_id, "KILLED")


def _forget_failures(folder: Path) -> None:
    """Clear the failures of trials, which then continue from their last checkpoint."""
    for mark in folder.glob(f"*/{FAILED_FILE}"):
        say(f"trial {mark.parent.name} failed before and is run again")
        mark.unlink()


def _scheduler(
    stopping: Stopping | None, plan: TrialPlan, folder: Path, steps: Callable[[TrainSettings], int]
) -> Any:
    if stopping is None:
        return FIFOScheduler()
    longest = max(steps(settings) for settings in plan.possible)
    scheduler = CooperativeASHA(
        folder,
        lambda name: steps(plan.trials[name].settings),
        time_attr=STEP,
        metric=DEV_SCORE,
        mode="max",
        grace_period=stopping.grace,
        reduction_factor=stopping.factor,
        max_t=max(longest, stopping.grace),
    )
    for name in plan.trials:
        if status_of(folder / name) in ENDED:
            scheduler.replay(name)
    return scheduler


def allocate_resources(
    workers: int, cpus: int | None, max_concurrent: int | None, on_gpus: bool = False
) -> tuple[int, int | None]:
    """Return (number of concurrent trials, cores of each worker or None for an even share).

    Raises UserError if `max_concurrent` trials do not fit (`trainings_that_fit`).
    """
    capacity = trainings_that_fit(workers, cpus, max_concurrent, on_gpus)
    at_once = max_concurrent or (1 if cpus is None and not on_gpus else capacity)
    # A single trial takes all cores; several share those of the nodes evenly.
    if cpus is None and at_once > 1:
        cpus = place_workers(live_nodes(), at_once * workers, on_gpus=on_gpus).threads
    return at_once, cpus
