"""Ray Tune's successive halving, which tells a trial to stop where Ray Tune would kill it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ray.tune.schedulers import AsyncHyperBandScheduler, TrialScheduler

from pipelines.recording.tracking import DEV_SPEARMAN
from pipelines.training.early_stopping import answer_run
from pipelines.tuning.progress import STEP
from pipelines.tuning.trial import TRIAL


class CooperativeASHA(AsyncHyperBandScheduler):  # type: ignore[misc]
    """folder: of the trials; steps: of a trial by its name. A trial at its last step is not
    stopped: it has its model to save, and nothing to gain."""

    def __init__(self, folder: Path, steps: Callable[[str], int], **options: Any) -> None:
        super().__init__(stop_last_trials=False, **options)
        self._folder, self._steps = folder, steps

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        action = super().on_trial_result(tune_controller, trial, result)
        if STEP in result:
            name, step = trial.config[TRIAL], int(result[STEP])
            go_on = action != TrialScheduler.STOP or step >= self._steps(name)
            answer_run(self._folder / name, step, go_on=go_on)
        return str(TrialScheduler.CONTINUE)

    def replay(self, name: str, scores: Mapping[int, float]) -> None:
        """A trial of an earlier run, so that those to come are measured against it too."""
        stand_in = SimpleNamespace(trial_id=f"earlier-{name}")
        self.on_trial_add(None, stand_in)
        for step, score in sorted(scores.items()):
            if step:
                report = {STEP: step, DEV_SPEARMAN: score}
                super().on_trial_result(None, stand_in, report)
