"""Train the candidates of `cotbert adapt` as trials of Ray Tune, and read their outcome."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from cotbert_core.settings import TrainSettings
from pipelines.adapting.candidates import check_every
from pipelines.options.shared import KeptFiles
from pipelines.recording import tracking
from pipelines.storage.corpus import Corpus
from pipelines.training.baseline import Baseline
from pipelines.training.dev_sets import DevSets, dev_metric
from pipelines.training.documents import training_steps
from pipelines.training.training_run import RunOptions
from pipelines.tuning import state
from pipelines.tuning.options import Stopping
from pipelines.tuning.run_trials import run_trials
from pipelines.tuning.trial import Sweep
from pipelines.tuning.trial_plan import Trial, TrialPlan


def train_candidates(
    candidates: Mapping[str, TrainSettings],
    corpus: Corpus,
    dev: DevSets,
    folder: Path,
    baseline: Baseline,
    *,
    parent: str | None,
    max_concurrent: int | None,
    kept: KeptFiles,
) -> list[dict[str, Any]]:
    """Train every candidate that has not ended, and return a row for each.

    With successive halving a candidate continues after a sixth and after half of its steps only if
    it is among the best third at that step. folder: each candidate has a folder below it. parent:
    the key of the MLflow run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # What two runs have in common is in the adaptation's settings.json, not in the plan.
    trials = {n: Trial(n, {"method": s.method.name}, s) for n, s in candidates.items()}
    plan = TrialPlan(trials, len(trials), list(candidates.values()), record={})
    first = next(iter(candidates.values()))
    several = len(candidates) > 1
    sweep = Sweep(
        folder=folder,
        corpus=corpus.path,
        tracking_uri=tracking.tracking_uri(),
        # A dev check before the first step would score the baseline again.
        options=RunOptions(parent=parent, early_stopping=several, check_before=False, kept=kept),
        baselines={first.encoder: baseline},
    )
    assert first.max_steps is not None
    stopping = Stopping(check_every(first.max_steps)) if several else None
    steps = partial(training_steps, corpus=corpus)
    run_trials(sweep, plan, dev, steps, stopping, max_concurrent)
    metric = dev_metric(dev)
    return [state.trial_row(trial, folder / name, metric) for name, trial in trials.items()]
