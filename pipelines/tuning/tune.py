"""cotbert tune: run many trainings over a space of settings, on Ray Tune, in one MLflow run.

The output folder holds settings.json (written first), trials/NAME/ (each a complete output of
`cotbert train`), report.html and, written last, result.json. The same command continues a sweep
that was killed: finished trials stay, and the others continue from their checkpoints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from cotbert_core.errors import UserError, counted
from cotbert_core.files import read_json, write_json
from cotbert_core.settings import TrainSettings, flatten, override
from pipelines.options.shared import MODEL_ALONE, KeptFiles
from pipelines.recording import tracking
from pipelines.recording.store import connect
from pipelines.runtime.progress import say
from pipelines.runtime.ray_session import ray_session
from pipelines.runtime.shared_storage import on_all_nodes
from pipelines.runtime.training_capacity import check_capacity, check_concurrent
from pipelines.storage.corpus import Corpus
from pipelines.storage.output_folder import (
    RESULT_FILE,
    check_output,
    require_job_folder,
)
from pipelines.storage.resumable_output import locked_output
from pipelines.training.baseline import Baseline, baselines
from pipelines.training.dev_sets import DevSets, dev_digest, dev_name
from pipelines.training.documents import training_steps
from pipelines.training.inputs import check_inputs, with_absolute_encoders
from pipelines.training.sentence_length import cut_notes
from pipelines.training.training_run import RunOptions
from pipelines.tuning import state
from pipelines.tuning.options import Stopping, TuneOptions
from pipelines.tuning.optuna_plan import OPTUNA, OptunaPlan
from pipelines.tuning.result import log_result, register_best, sweep_result, without_result
from pipelines.tuning.run_trials import run_trials
from pipelines.tuning.sweep_folder import lacks_registration, open_sweep, record_of
from pipelines.tuning.trial import Sweep
from pipelines.tuning.trial_plan import SEED, TrialPlan, check_effect, sampled_plan


@dataclass(frozen=True)
class _Job:
    """What is asked of `tune`, its trials planned. kept: what stays of a trial that has ended."""

    options: TuneOptions
    plan: TrialPlan
    corpus: Corpus
    dev: DevSets
    output: Path
    kept: KeptFiles


def tune(
    options: TuneOptions,
    base: TrainSettings,
    corpus: Corpus,
    dev: DevSets,
    output: Path,
    *,
    discard: bool = False,
    kept: KeptFiles = MODEL_ALONE,
) -> dict[str, Any]:
    """Run the sweep and return its result; UserError for any mistake, before a trial starts.

    discard: delete another sweep in the output folder. kept: what stays of a trial that has ended.
    """
    base = with_absolute_encoders(base)
    seeds = options.seeds or (base.seed,)
    options = replace(options, seeds=seeds)
    make_plan = OptunaPlan if options.search == OPTUNA else sampled_plan
    plan: TrialPlan = make_plan(options.space, base, options.trials, seeds, options.draw_seed)
    check_effect(options.space, plan.possible)
    check_settings(plan.possible, corpus, options.stopping)
    output = require_job_folder(output)
    encoders = dict.fromkeys(settings.encoder for settings in plan.possible)
    with on_all_nodes(output, (corpus.path, *encoders)), locked_output(output):
        for settings in plan.possible:
            check_capacity(settings)
            check_concurrent(settings, options.max_concurrent)
        record = record_of(options, plan, corpus, dev)
        if options.register and not discard and lacks_registration(output):
            check_output(output, "sweep", record, finished=False)  # UserError for another sweep
            return _registered(options.register, dev, output)
        output = open_sweep(output, record, discard)
        return _tracked(_Job(options, plan, corpus, dev, output, kept))


def _tracked(job: _Job) -> dict[str, Any]:
    """Run the sweep in its MLflow run, which fails with SweepError if no trial finished."""
    options, plan, output = job.options, job.plan, job.output
    about = f"{options.space.purpose} {counted(plan.total, 'trial')} of recipe {options.recipe}."
    with (
        tracking.tracked_run(
            "tune",
            _params(job),
            name=tracking.run_name(f"tune {options.space.name}", output),
            about=about,
            home=output,
        ) as run,
        ray_session(output),
    ):
        run.dataset(job.corpus)
        encoders = {settings.encoder: settings.precision for settings in plan.possible}
        found = baselines(output, encoders, job.dev, run)
        _run_trials(job, found, run)
        result = sweep_result(options, plan, output, run.id, dev_name(job.dev), found)
        if options.register and result["best"]:
            digest = dev_digest(job.dev)
            result["registered"] = register_best(options.register, result, output, digest)
        if result[state.FAILED] and run.id:  # a trial whose process died did not end its run
            tracking.end_lost_children(run.id)
        log_result(run, options.space, result, output)
        if result["best"] is None:
            run.write_result(output, result, "mlflow_parent_run_id")
            raise without_result(result["trials"])
    run.write_result(output, result, "mlflow_parent_run_id")
    return result


def _run_trials(job: _Job, found: Mapping[str, Baseline], run: tracking.Run) -> None:
    """Train the trials that have not ended. found: the untouched encoders' scores."""
    options, folder = job.options, job.output / state.TRIALS_FOLDER
    folder.mkdir(exist_ok=True)
    job.plan.open(folder)
    sweep = Sweep(
        folder=folder,
        corpus=job.corpus.path,
        tracking_uri=tracking.tracking_uri(),
        options=RunOptions(
            recipe=options.recipe,
            parent=run.key,
            early_stopping=options.stopping is not None,
            kept=job.kept,
        ),
        baselines=found,
    )
    steps = partial(training_steps, corpus=job.corpus)
    run_trials(sweep, job.plan, job.dev, steps, options.stopping, options.max_concurrent)


def _registered(name: str, dev: DevSets, output: Path) -> dict[str, Any]:
    """Register the best model of a finished sweep, and return its result."""
    result: dict[str, Any] = read_json(output / RESULT_FILE)
    result["registered"] = register_best(name, result, output, dev_digest(dev))
    write_json(output / RESULT_FILE, result)
    if result["registered"]:  # the run's copy of the file says that nothing is registered
        tracking.Run(connect(), result["mlflow_parent_run_id"]).artifact(output / RESULT_FILE)
    return result


def _params(job: _Job) -> dict[str, Any]:
    """Return what all trials share: the settings, and the options of the sweep."""
    options, plan, corpus = job.options, job.plan, job.corpus
    stopping = vars(options.stopping) if options.stopping else {}
    first, *others = map(flatten, plan.possible)
    shared = {k: v for k, v in first.items() if k != SEED and all(o.get(k) == v for o in others)}
    return {
        **shared,
        "space": options.space.name,
        "recipe": options.recipe,
        "trials": options.trials,
        "seeds": ",".join(map(str, options.seeds or ())),
        "draw_seed": options.draw_seed,
        **{f"stopping.{key}": value for key, value in stopping.items()},
        "search": plan.search,
        "dev": dev_name(job.dev),
        "corpus": str(corpus.path),
        "corpus_digest": corpus.digest,
    }


def check_settings(
    possible: Sequence[TrainSettings], corpus: Corpus, stopping: Stopping | None = None
) -> None:
    """Raise UserError for settings with which a trial would fail, or never be checked in time to
    be stopped; seeds make no difference."""
    distinct = {repr(flatten(override(s, {SEED: 0}))): s for s in possible}
    if stopping is not None:
        longest = max(training_steps(settings, corpus) for settings in distinct.values())
        if stopping.grace >= longest:
            raise UserError(
                f"asha is {counted(stopping.grace, 'step')} and the longest trial has {longest}, "
                "so no trial would be stopped: give fewer steps"
            )
    notes: dict[str, None] = {}
    for settings in distinct.values():
        if stopping is not None and stopping.grace % settings.eval_every:
            raise UserError(
                f"asha is {counted(stopping.grace, 'step')} and a dev check is made every "
                f"{settings.eval_every} (eval_every): give a multiple of that"
            )
        check_inputs(settings, corpus)
        notes |= dict.fromkeys(cut_notes(settings, corpus))
    for note in notes:
        say(f"note: {note}")
