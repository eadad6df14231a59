"""A plan that Optuna makes while the sweep runs: each sample by the scores of those before it.

What was drawn for a trial lies beside its folder, in trials/NAME.drawn.json, before the trial
starts. With what is in the folders that is all a restart needs: known trials stay as they are, and
Optuna is told of them again.
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
from pipelines.tuning.trial_plan import DEFAULT_TRIALS, SEED, Plan, Trial, settings_of, trial_name
from tune_spaces import VARIANT, Space, changes
from tune_spaces.search_space import enough_corners

OPTUNA = "optuna"
DRAWN_ENDING = ".drawn.json"
# Each is checked against corpus and encoder, which takes 0.2 to 0.7 s for MiniLM; of a space with
# more corners such as hold every pair of values.
CORNERS = 100
# Of a range in steps so many values are checked, from end to end.
CHECKED = 1000


def check_optuna() -> None:
    """UserError without the extra, before anything starts."""
    if util.find_spec("optuna") is None:
        raise UserError(
            f"search {OPTUNA} needs Optuna: install the extra {OPTUNA} "
            "(pip install 'cotbert[optuna]')"
        )


class OptunaPlan(Plan):
    """`samples` of a space, each under all seeds, in the order in which Optuna asks for them."""

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
        self._drawn: list[dict[str, Any]] = []  # of each sample
        self._folder = Path()
        _check_space(space, self._suggestions.count(), samples)
        possible = [settings_of(space, base, point) for point in enough_corners(space, CORNERS)]
        # Between valid ends there may be invalid values: a batch that its workers cannot share.
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
        new = number == len(self._drawn)
        drawn = self._suggestions.next(self._told()) if new else self._drawn[number]
        sample = self._suggestions.sample(drawn)
        write_json(self._file(self._next_name()), {"drawn": drawn, "sample": sample})
        return self._add(drawn)

    def _add(self, drawn: dict[str, Any]) -> Trial:
        number, seed = divmod(len(self.trials), len(self._seeds))
        if number == len(self._drawn):
            self._drawn.append(drawn)
        sample = {**self._suggestions.sample(drawn), SEED: self._seeds[seed]}
        settings = settings_of(self._space, self._base, sample)
        trial = Trial(self._next_name(), sample, settings)
        self.trials[trial.name] = trial
        return trial

    def _next_name(self) -> str:
        return trial_name(len(self.trials), self.total)

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}{DRAWN_ENDING}"

    def _told(self) -> list[ObservedTrial]:
        """Every sample as its trials' folders tell of it."""
        names, size = list(self.trials), len(self._seeds)
        return [
            told(drawn, [self._folder / name for name in names[n * size : (n + 1) * size]])
            for n, drawn in enumerate(self._drawn)
        ]


def told(drawn: dict[str, Any], folders: Sequence[Path]) -> ObservedTrial:
    """A sample by its trials under all seeds, its score the mean of theirs.

    One that is under way, failed or was stopped under one seed is so as a whole.
    """
    statuses = [status_of(folder) for folder in folders]
    status = next(s for s in (UNFINISHED, FAILED, STOPPED, FINISHED) if s in statuses)
    if status in (UNFINISHED, FAILED):
        return ObservedTrial(drawn, status)
    curves = [trained_scores(dev_scores(folder)) for folder in folders]
    if status == FINISHED:
        score = statistics.fmean(max(curve.values(), default=math.nan) for curve in curves)
        # Vectors that are all alike have no Spearman, and Optuna takes no NaN.
        return (
            ObservedTrial(drawn, status, score)
            if math.isfinite(score)
            else ObservedTrial(drawn, FAILED)
        )
    steps = sorted(set.intersection(*map(set, curves)))
    return ObservedTrial(
        drawn, status, None, {n: statistics.fmean(c[n] for c in curves) for n in steps}
    )


def _check_space(space: Space, count: int | None, samples: int) -> None:
    if SEED in space.settings:
        raise UserError(
            f"space {space.name} draws the seed, and no seed is better than another: leave "
            f"--search {OPTUNA} out"
        )
    if count is not None and count < samples:
        raise UserError(
            f"trials is {samples} and space {space.name} has {count} different ones: give fewer, "
            f"or leave --search {OPTUNA} out, which runs each of them"
        )
