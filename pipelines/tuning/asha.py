"""Successive halving (ASHA) that requests a trial to stop, where Ray Tune would kill it."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ray.tune.schedulers import AsyncHyperBandScheduler, TrialScheduler

from pipelines.recording.metric_names import DEV_SCORE
from pipelines.training.early_stopping import answer_run, was_stopped
from pipelines.tuning.state import trained_scores
from pipelines.tuning.trial import STEP, TRIAL


class CooperativeASHA(AsyncHyperBandScheduler):  # type: ignore[misc]
    """Ray Tune's ASHA with cooperative stopping.

    folder: the trials' folder. steps: function from a trial's name to its number of steps. A trial
    at its last step is not stopped, since it only has to save its model.
    """

    def __init__(self, folder: Path, steps: Callable[[str], int], **options: Any) -> None:
        super().__init__(stop_last_trials=False, **options)
        self._folder, self._steps = folder, steps
        # Trials whose process died at a check after which they stop. Their next check stops them:
        # the rungs, which know them, would let it pass.
        self._stopping: set[str] = set()

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        """Record the scores of a trial that was killed: it reports only its later ones."""
        super().on_trial_add(tune_controller, trial)
        name = trial.config[TRIAL]
        stops = self._record(trial, name) == TrialScheduler.STOP
        if stops or was_stopped(self._folder / name):
            self._stopping.add(name)

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        action = super().on_trial_result(tune_controller, trial, result)
        if STEP in result:
            name, step = trial.config[TRIAL], int(result[STEP])
            # Equal vectors have no score, which no rung stops.
            collapsed = step > 0 and math.isnan(result[DEV_SCORE])
            stops = action == TrialScheduler.STOP or name in self._stopping or collapsed
            continues = not stops or step >= self._steps(name)
            answer_run(self._folder / name, step, continues=continues)
        return str(TrialScheduler.CONTINUE)

    def replay(self, name: str) -> None:
        """Record the scores of a trial that ended in an earlier run, for others to compete with."""
        stand_in = SimpleNamespace(trial_id=f"earlier-{name}")
        super().on_trial_add(None, stand_in)
        self._record(stand_in, name)

    def _record(self, trial: Any, name: str) -> str:
        """Record the scores in a trial's folder; return the scheduler's decision at the last."""
        decision = TrialScheduler.CONTINUE
        for step, score in sorted(trained_scores(self._folder / name).items()):
            decision = super().on_trial_result(None, trial, {STEP: step, DEV_SCORE: score})
        return str(decision)
