"""Show the progress of a sweep's trials, and mark failed trials in their folders."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ray.tune import Callback

from cotbert_core.files import read_json, write_json
from cotbert_core.settings import TrainSettings
from pipelines.recording.metric_names import DEV_SCORE
from pipelines.runtime.progress import clock, say
from pipelines.tuning.state import ENDED, FAILED_FILE, UNFINISHED, dev_scores, status_of
from pipelines.tuning.trial import STEP, TRIAL, one_line
from pipelines.tuning.trial_plan import TrialPlan

# Least time between two tables of trials, which are also shown whenever a trial has ended.
TABLE_SECONDS = 60.0


class ProgressCallback(Callback):  # type: ignore[misc]
    """Ray Tune's callback on the driver.

    plan: the sweep's trials, including those of earlier runs. steps: function from settings to
    number of steps.
    """

    def __init__(
        self, plan: TrialPlan, folder: Path, steps: Callable[[TrainSettings], int]
    ) -> None:
        self._plan, self._folder, self._steps_of = plan, folder, steps
        self._at: dict[str, int] = {}
        self._best: dict[str, float] = {}
        self._status = {name: status_of(folder / name) for name in plan.trials}
        for name, status in self._status.items():
            if status in ENDED:
                self._at[name] = self._steps(name)
                self._best[name] = max(dev_scores(folder / name).values())
        self._before, self._began = self._done(), time.monotonic()
        self._shown = self._began

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        del iteration, trials, info
        name = trial.config[TRIAL]
        if DEV_SCORE not in result or STEP not in result:
            return
        self._at[name] = int(result[STEP])
        score = float(result[DEV_SCORE])
        self._best[name] = max(score, self._best.get(name, score))
        say(f"{self._head()}  {name} step {result[STEP]}/{self._steps(name)} dev {score:.2f}")
        if time.monotonic() - self._shown > TABLE_SECONDS:
            self._table()

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        del iteration, trials, info
        self._ended(trial.config[TRIAL])

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        del iteration, trials, info
        name = trial.config[TRIAL]
        mark = self._folder / name / FAILED_FILE
        if not mark.is_file():  # its process died
            write_json(mark, {"error": one_line(trial.get_error() or "its process died")})
        say(f"trial {name} failed: {read_json(mark)['error']}")
        self._ended(name)

    def _ended(self, name: str) -> None:
        self._status[name] = status_of(self._folder / name)
        self._at[name] = self._steps(name)
        self._table()

    def _done(self) -> float:
        """Return the amount of completed training, in trials."""
        return sum(at / self._steps(name) for name, at in self._at.items())

    def _steps(self, name: str) -> int:
        return self._steps_of(self._plan.trials[name].settings)

    def _head(self) -> str:
        ended = sum(status != UNFINISHED for status in self._status.values())
        done, seconds = self._done() - self._before, time.monotonic() - self._began
        left = (self._plan.total - self._before - done) * seconds / done if done else None
        time_left = f"  {clock(left)} left" if left else ""
        return f"tune     trial {ended}/{self._plan.total}{time_left}"

    def _table(self) -> None:
        """Show the started trials, the best first."""
        self._shown = time.monotonic()
        rows = sorted(self._at, key=lambda name: -self._best.get(name, float("-inf")))
        say(self._head())
        for name in rows[:10]:
            best = f"{self._best[name]:6.2f}" if name in self._best else "      "
            status = self._status.get(name, UNFINISHED)
            shown = f"step {self._at[name]}" if status == UNFINISHED else status
            say(f"  {name}  {best}  {shown:<9} {self._plan.trials[name].description}")
        if len(rows) > 10:
            say(f"  and {len(rows) - 10} more")
