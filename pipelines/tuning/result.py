"""The result of a sweep, in files and in its MLflow run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines.recording import tracking
from pipelines.recording.dev_metric import metric_in
from pipelines.recording.registry import register
from pipelines.runtime.ending import REPORT_FILE
from pipelines.runtime.progress import say
from pipelines.storage.output_folder import earlier_run
from pipelines.training.baseline import Baseline
from pipelines.tuning import state
from pipelines.tuning.options import TuneOptions
from pipelines.tuning.report import write_sweep_report
from pipelines.tuning.trial_plan import TrialPlan
from tune_spaces import Space


class SweepError(RuntimeError):
    """No trial finished: exit status 1."""


def sweep_result(
    options: TuneOptions,
    plan: TrialPlan,
    output: Path,
    run_id: str | None,
    dev: str,
    baselines: Mapping[str, Baseline],
) -> dict[str, Any]:
    """Return the contents of result.json: all trials, the best, and the number of each status.

    dev: name of the dev set. baselines: by encoder; the result has the one of the best trial.
    """
    folder = output / state.TRIALS_FOLDER
    metric = next(iter(baselines.values())).metric
    rows = [state.trial_row(trial, folder / name, metric) for name, trial in plan.trials.items()]
    best = state.best_of(state.best_settings(rows))
    settings = plan.trials[best["name"]].settings if best else None
    baseline = baselines[settings.encoder if settings else next(iter(baselines))]
    return {
        "space": options.space.name,
        "recipe": options.recipe,
        "search": plan.search,
        "dev": dev,
        metric.name: best[metric.name] if best else None,
        metric.before: best[metric.before] if best else None,
        **baseline.entries,
        "method": settings.method.name if settings else None,
        "encoder": settings.encoder if settings else None,
        "best": best,
        "trials": rows,
        **{status: sum(row["status"] == status for row in rows) for status in state.STATUSES},
        "training_seconds": round(sum(row["training_seconds"] for row in rows), 1),
        "mlflow_parent_run_id": run_id,
    }


def register_best(
    name: str, result: Mapping[str, Any], output: Path, dev_digest: str
) -> str | None:
    """Register the best trial's model, with the trial's run as its source."""
    best = result["best"]
    # The result lacks the id of a run whose records were sent later.
    run_id = best["mlflow_run_id"] or earlier_run(output / state.TRIALS_FOLDER / best["name"])
    run = tracking.Run(None, run_id)
    model = state.model_of(output, best["name"])
    metric = metric_in(best)
    score = best[metric.name]
    address = register(run, model, name, score, result["dev"], metric, dev_digest)
    if address is None:
        say("once that is mended, the same command registers the best model")
    return address


def log_result(run: tracking.Run, space: Space, result: dict[str, Any], output: Path) -> None:
    """Write the sweep's page and log its result to its MLflow run."""
    if result["best"]:
        metric = metric_in(result)
        run.metrics({metric.name: result[metric.name]})
        # Tags, not params, which cannot change: a sweep that is continued may have another best.
        best = {f"best.{k}": v for k, v in result["best"]["settings"].items()}
        run.tags({"best_trial": result["best"]["name"], **best})
    run.metrics({k: result[k] for k in (state.FINISHED, state.STOPPED, state.FAILED)})
    page = output / REPORT_FILE
    write_sweep_report(page, result, published=space.published, source=space.source)
    run.artifact(page)


def without_result(rows: Sequence[Mapping[str, Any]]) -> SweepError:
    """Return the error for trials none of which finished, with the first two different reasons,
    each after the first trial that has it."""
    names: dict[str, str] = {}
    for row in rows:
        if row["error"]:
            names.setdefault(row["error"], row["name"])
    reasons = [f"{name}: {error}" for error, name in names.items()]
    return SweepError(f"no trial finished ({'; '.join(reasons[:2]) or 'see --verbose'})")
