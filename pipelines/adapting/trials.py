"""Train the candidates of `cotbert adapt` as trials of Ray Tune, and read what came of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cotbert_core.settings import TrainSettings
from pipelines.adapting.candidates import check_every
from pipelines.options.kept_files import MODEL_ALONE, KeptFiles
from pipelines.recording import tracking
from pipelines.storage.corpus import Corpus
from pipelines.training.baseline import Baseline
from pipelines.training.dev_sets import DevSets
from pipelines.training.documents import training_steps
from pipelines.tuning import state
from pipelines.tuning.options import Stopping
from pipelines.tuning.run_trials import run_trials
from pipelines.tuning.trial import Sweep
from pipelines.tuning.trial_plan import Trial, TrialPlan


@dataclass(frozen=True)
class Trials:
    """The candidates that are trained, and what all of them share.

    folder: the trials' folders are below it, by candidate. parent: the key of the MLflow run.
    """

    settings: Mapping[str, TrainSettings]
    corpus: Corpus
    dev: DevSets
    folder: Path
    baseline: Baseline
    parent: str | None
    max_concurrent: int | None = None
    verbose: bool = False
    kept: KeptFiles = MODEL_ALONE

    def run(self) -> list[dict[str, Any]]:
        """Train every candidate that has not ended, and return a row for each.

        With successive halving a candidate continues after a sixth and after half of its steps only
        if it is among the best third of those that were there.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        # What two runs have in common is in the adaptation's settings.json, not in the plan.
        trials = {n: Trial(n, {"method": s.method.name}, s) for n, s in self.settings.items()}
        plan = TrialPlan(trials, len(trials), list(self.settings.values()), record={})
        first = next(iter(self.settings.values()))
        sweep = Sweep(
            str(self.folder),
            str(self.corpus.path),
            self.parent,
            tracking.tracking_uri(),
            len(self.settings) > 1,
            self.verbose,
            {first.encoder: self.baseline},
            self.kept,
        )
        assert first.max_steps is not None
        stopping = Stopping(check_every(first.max_steps)) if sweep.early_stopping else None
        steps = partial(training_steps, corpus=self.corpus)
        run_trials(sweep, plan, self.dev, steps, stopping, self.max_concurrent)
        return [state.trial_row(trial, self.folder / name) for name, trial in trials.items()]

    def model(self, name: str) -> Path:
        """Return the model folder of a finished candidate."""
        return self.folder / name / "model"
