"""Show the progress of a sweep's trials, and mark failed trials in their folders."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ray.tune import Callback

from cotbert_core.files import read_json, write_json
from cotbert_core.settings import TrainSettings
from cotbert_core.training.dev_scores import sort_key
from pipelines.recording.metric_names import DEV_SCORE
from pipelines.runtime.progress import clock, say
from pipelines.tuning.state import FAILED_FILE, UNFINISHED, status_of, trained_scores
from pipelines.tuning.trial import STEP, TRIAL, one_line
from pipelines.tuning.trial_plan import TrialPlan

# Least time between two tables of trials, which are also shown whenever a trial has ended.
TABLE_SECONDS = 60.0


class ProgressCallback(Callback):  # type: ignore[misc]
    """Ray Tune's callback on the driver.

    plan: the sweep's trials, including those of earlier runs. steps: function from settings to
    number of steps. share: the part of its steps that a trial is expected to make.
    """

    def __init__(
        self,
        plan: TrialPlan,
        folder: Path,
        steps: Callable[[TrainSettings], int],
        share: float = 1.0,
    ) -> None:
        self._plan, self._folder, self._steps_of, self._share = plan, folder, steps, share
        self._at: dict[str, int] = {}  # the step of each trial that has begun
        self._best: dict[str, float] = {}
        self._status = {name: status_of(folder / name) for name in plan.trials}
        for name in plan.trials:
            for step, score in trained_scores(folder / name).items():
                self._checked(name, step, score)
        self._before, self._began = self._done(), time.monotonic()
        self._shown = self._began

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        del iteration, trials, info
        name = trial.config[TRIAL]
        if DEV_SCORE not in result or STEP not in result:
            return
        step, score = int(result[STEP]), float(result[DEV_SCORE])
        if step < self._at.get(name, 0):  # repeated, since it failed without a checkpoint
            self._before -= self._at[name] / self._steps(name)
        self._checked(name, step, score)
        say(f"{self._head()}  {name} step {step}/{self._steps(name)} dev {score:.2f}")
        if time.monotonic() - self._shown > TABLE_SECONDS:
            self._table()

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        del iteration, trials, info
        self._ended(trial.config[TRIAL])

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        del iteration, trials, info
        say(f"trial {trial.config[TRIAL]} continues from its last checkpoint: its process died")

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        del iteration, trials, info
        name = trial.config[TRIAL]
        error = one_line(trial.get_error() or "its process died")
        write_json(self._folder / name / FAILED_FILE, {"error": error})
        self._ended(name)

    def _checked(self, name: str, step: int, score: float) -> None:
        self._at[name] = step
        self._best[name] = max(score, self._best.get(name, -math.inf), key=sort_key)

    def _ended(self, name: str) -> None:
        mark = self._folder / name / FAILED_FILE
        if mark.is_file():
            say(f"trial {name} failed: {read_json(mark)['error']}")
        self._status[name] = status_of(self._folder / name)
        self._at.setdefault(name, 0)
        self._table()

    def _done(self) -> float:
        """Return the amount of completed training, in trials."""
        return sum(at / self._steps(name) for name, at in self._at.items())

    def _left(self) -> float:
        """Return the expected amount of remaining training, in trials."""
        trials = self._plan.trials
        open_ones = [name for name in trials if self._status.get(name, UNFINISHED) == UNFINISHED]
        parts = [self._at.get(name, 0) / self._steps(name) for name in open_ones]
        parts += [0.0] * (self._plan.total - len(trials))
        return sum((self._share if part < self._share else 1.0) - part for part in parts)

    def _steps(self, name: str) -> int:
        return self._steps_of(self._plan.trials[name].settings)

    def _head(self) -> str:
        ended = sum(status != UNFINISHED for status in self._status.values())
        done, seconds = self._done() - self._before, time.monotonic() - self._began
        left = self._left() * seconds / done if done else None
        time_left = f"  {clock(left)} left" if left else ""
        return f"tune     trial {ended}/{self._plan.total}{time_left}"

    def _table(self) -> None:
        """Show the started trials, the best first."""
        self._shown = time.monotonic()
        rows = sorted(self._at, key=lambda name: -sort_key(self._best.get(name, -math.inf)))
        say(self._head())
        for name in rows[:10]:
            best = f"{self._best[name]:6.2f}" if name in self._best else "      "
            status = self._status.get(name, UNFINISHED)
            shown = f"step {self._at[name]}" if status == UNFINISHED else status
            say(f"  {name}  {best}  {shown:<9} {self._plan.trials[name].description}")
        if len(rows) > 10:
            say(f"  and {len(rows) - 10} more")
