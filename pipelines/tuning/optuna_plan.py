"""A plan in which Optuna chooses each sample by the scores of the samples before it.

The sample of a trial is written to trials/NAME.drawn.json, next to the trial's folder, before the
trial starts. From these files and the trials' folders a restart gives Optuna all earlier trials.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from importlib import util
from pathlib import Path
from typing import Any

from cotbert_core.errors import UserError
from cotbert_core.files import read_json, write_json
from cotbert_core.settings import TrainSettings, flatten
from pipelines.tuning.optuna_sampler import ObservedTrial, Suggestions
from pipelines.tuning.state import (
    FAILED,
    FINISHED,
    STOPPED,
    UNFINISHED,
    dev_scores,
    status_of,
    trained_scores,
)
from pipelines.tuning.trial_plan import (
    DEFAULT_TRIALS,
    SEED,
    Trial,
    TrialPlan,
    settings_of,
    trial_name,
)
from tune_spaces import VARIANT, Space, changes
from tune_spaces.search_space import enough_corners

OPTUNA = "optuna"
SAMPLED_ENDING = ".drawn.json"
# Maximum number of corners of a space that are checked against corpus and encoder, which takes 0.2
# to 0.7 s each for MiniLM; of more corners a subset with every pair of values is checked.
CORNERS = 100
# Maximum number of values of a stepped range that are checked, evenly spaced.
CHECKED = 1000


def check_optuna() -> None:
    """Raise UserError unless Optuna is installed."""
    if util.find_spec("optuna") is None:
        raise UserError(
            f"search {OPTUNA!r} needs the package optuna: install it with pip install "
            "'cotbert[optuna]'"
        )


class OptunaPlan(TrialPlan):
    """`samples` samples of a space, each with all seeds, in the order in which Optuna chooses."""

    def __init__(
        self,
        space: Space,
        base: TrainSettings,
        samples: int | None,
        seeds: Sequence[int],
        draw_seed: int,
    ) -> None:
        samples = samples or DEFAULT_TRIALS
        self._space, self._base, self._seeds = space, base, tuple(seeds)
        self._suggestions = Suggestions(space, draw_seed)
        self._sampled: list[dict[str, Any]] = []  # Optuna's parameters of each sample
        self._folder = Path()
        _check_space(space, self._suggestions.count(), samples)
        possible = [settings_of(space, base, point) for point in enough_corners(space, CORNERS)]
        # Between valid ends there may be invalid values, such as an indivisible batch size.
        for point in self._suggestions.each_value(CHECKED):
            settings_of(space, base, point)
        record = {
            "search": OPTUNA,
            "draw_seed": draw_seed,
            "seeds": list(self._seeds),
            "trials": samples,
            "settings": flatten(base),
            "axes": {path: str(axis) for path, axis in space.settings.items()},
            "variants": {name: changes(space, {VARIANT: name}) for name in space.variants},
        }
        super().__init__({}, samples * len(self._seeds), possible, record, OPTUNA)

    def open(self, folder: Path) -> None:
        self._folder = folder
        while len(self.trials) < self.total and self._file(self._next_name()).is_file():
            self._add(read_json(self._file(self._next_name()))["drawn"])

    def grow(self) -> Trial | None:
        if len(self.trials) == self.total:
            return None
        number = len(self.trials) // len(self._seeds)
        new = number == len(self._sampled)
        params = self._suggestions.next(self._observed()) if new else self._sampled[number]
        sample = self._suggestions.sample(params)
        write_json(self._file(self._next_name()), {"drawn": params, "sample": sample})
        return self._add(params)

    def _add(self, params: dict[str, Any]) -> Trial:
        number, seed = divmod(len(self.trials), len(self._seeds))
        if number == len(self._sampled):
            self._sampled.append(params)
        sample = {**self._suggestions.sample(params), SEED: self._seeds[seed]}
        settings = settings_of(self._space, self._base, sample)
        trial = Trial(self._next_name(), sample, settings)
        self.trials[trial.name] = trial
        return trial

    def _next_name(self) -> str:
        return trial_name(len(self.trials), self.total)

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}{SAMPLED_ENDING}"

    def _observed(self) -> list[ObservedTrial]:
        """Return every sample with the outcome of its trials."""
        names, size = list(self.trials), len(self._seeds)
        return [
            observed(params, [self._folder / name for name in names[n * size : (n + 1) * size]])
            for n, params in enumerate(self._sampled)
        ]


def observed(params: dict[str, Any], folders: Sequence[Path]) -> ObservedTrial:
    """Return a sample with the mean score of its trials over the seeds.

    If one of the trials is unfinished, failed or stopped, so is the sample.
    """
    statuses = [status_of(folder) for folder in folders]
    status = next(s for s in (UNFINISHED, FAILED, STOPPED, FINISHED) if s in statuses)
    if status in (UNFINISHED, FAILED):
        return ObservedTrial(params, status)
    curves = [trained_scores(dev_scores(folder)) for folder in folders]
    if status == FINISHED:
        score = statistics.fmean(max(curve.values(), default=math.nan) for curve in curves)
        # Collapsed vectors give a Spearman of NaN, which Optuna does not accept.
        return (
            ObservedTrial(params, status, score)
            if math.isfinite(score)
            else ObservedTrial(params, FAILED)
        )
    steps = sorted(set.intersection(*map(set, curves)))
    return ObservedTrial(
        params, status, None, {n: statistics.fmean(c[n] for c in curves) for n in steps}
    )


def _check_space(space: Space, count: int | None, samples: int) -> None:
    if SEED in space.settings:
        raise UserError(
            f"space {space.name} samples the seed, and no seed is better than another: leave "
            f"--search {OPTUNA} out"
        )
    if count is not None and count < samples:
        raise UserError(
            f"trials is {samples} and space {space.name} has {count} different samples: give "
            f"fewer, or leave --search {OPTUNA} out to run each of them"
        )
