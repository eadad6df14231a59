"""A plan of a sweep's trials, all sampled on the driver before the first one starts.

The sample of a trial depends only on the space, the seed and the trial's position in the plan, so
the same command continues a sweep that was killed.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cotbert_core.errors import UserError, counted
from cotbert_core.settings import TrainSettings, flatten, override
from pipelines.runtime.progress import say
from pipelines.training.inputs import with_absolute_encoders
from tune_spaces import Space, axes_of, changes, size
from tune_spaces.axes import Axis, Choice, Range

# Number of samples of a space with a continuous axis if --trials is not given.
DEFAULT_TRIALS = 12
SEED = "seed"
# The values of TrialPlan.search here: every point of the space, or random samples.
GRID, RANDOM = "grid", "random"


@dataclass(frozen=True)
class Trial:
    """A trial. name: its folder's name. sample: its sampled values and seed."""

    name: str
    sample: Mapping[str, Any]
    settings: TrainSettings

    @property
    def description(self) -> str:
        """The sampled values on one line, each with the last part of the setting's name."""
        cells = (
            f"{key.rpartition('.')[2]}={f'{value:.4g}' if isinstance(value, float) else value}"
            for key, value in self.sample.items()
        )
        return " ".join(cells)


@dataclass
class TrialPlan:
    """The trials of a sweep; trials may be added while it runs.

    trials: the known trials by name. total: final number of trials. possible: settings to check
    before the first trial starts. record: everything that identifies the sweep when it is resumed.
    search: how trials are chosen: `grid`, `random` or `optuna`.
    """

    trials: dict[str, Trial]
    total: int
    possible: list[TrainSettings]
    record: dict[str, Any]
    search: str = GRID

    def open(self, folder: Path) -> None:
        """Load the trials of an earlier run of the sweep from its trials folder."""

    def grow(self) -> Trial | None:
        """Add a trial, chosen by the outcome of earlier ones, and return it; None if complete."""
        return None


def sampled_plan(
    space: Space, base: TrainSettings, trials: int | None, seeds: Sequence[int], draw_seed: int
) -> TrialPlan:
    """Return a plan with all its trials."""
    planned = {t.name: t for t in plan_trials(space, base, trials, seeds, draw_seed)}
    record = {"trials": {name: flatten(trial.settings) for name, trial in planned.items()}}
    points = size(space)
    if points is not None and trials is not None and trials > points:
        say(
            f"note: space {space.name} has {counted(points, 'point')}, and each seed has as many "
            "trials"
        )
    search = RANDOM if points is None or (trials or points) < points else GRID
    return TrialPlan(planned, len(planned), [t.settings for t in planned.values()], record, search)


def plan_trials(
    space: Space, base: TrainSettings, trials: int | None, seeds: Sequence[int], draw_seed: int
) -> list[Trial]:
    """Return all trials of a sweep: the grid, or `trials` points or samples, each with every seed.

    Raises UserError for the first sample with invalid settings.
    """
    if len(seeds) > 1 and SEED in space.settings:
        raise UserError(f"space {space.name} samples the seed itself: leave --seeds out")
    samples = samples_of(space, trials, draw_seed)
    planned: list[Trial] = []
    for sample, seed in itertools.product(samples, seeds):
        whole = dict(sample) if SEED in sample else {**sample, SEED: seed}
        name = trial_name(len(planned), len(samples) * len(seeds))
        planned.append(Trial(name, whole, settings_of(space, base, whole)))
    return planned


def varied(space: Space) -> set[str]:
    """Return the names of the settings that vary in a space."""
    return {*space.settings, *(path for one in space.variants.values() for path in one)}


def check_fixed(space: Space, changed: Collection[str]) -> None:
    """Raise UserError if a setting that the user gave varies in the space, except for the encoder,
    whose tokenizer the corpus has."""
    if hits := sorted({*changed} & varied(space) - {"encoder"}):
        raise UserError(
            f"{hits[0]} is given, by --set, --config or its own option, and space {space.name} "
            f"varies it: leave it out, or choose another space"
        )


def check_effect(space: Space, possible: Sequence[TrainSettings]) -> None:
    """Raise UserError if a setting that varies has no effect in any possible trial."""
    for name in space.settings:
        reasons = [settings.idle.get(name) for settings in possible]
        if name == "dev":
            reasons = ["all trials are scored on the same dev sets"]
        if all(reasons):
            raise UserError(
                f"space {space.name} varies {name}, which has no effect, because {reasons[0]}: "
                "choose another recipe or space"
            )


def trial_name(place: int, total: int) -> str:
    """Return the name of a trial, 0000, 0001, ...; names sort in the order of the trials."""
    return f"{place:0{max(4, len(str(total)))}}"


def settings_of(space: Space, base: TrainSettings, sample: Mapping[str, Any]) -> TrainSettings:
    """Return the settings of a sample; UserError names the sample if they are invalid."""
    try:
        return with_absolute_encoders(override(base, changes(space, sample)))
    except UserError as error:
        shown = ", ".join(f"{key}={value}" for key, value in sample.items())
        raise UserError(f"space {space.name} with {shown}: {error}") from None


def samples_of(space: Space, trials: int | None, seed: int) -> list[dict[str, Any]]:
    """Return the samples of a space.

    A grid gives all points in order, or `trials` distinct random points. A space with continuous
    axes gives the points of its grid in turn, each with random values on the continuous axes.
    """
    axes = axes_of(space)
    generator = np.random.RandomState(seed)
    if size(space) is not None:
        points = _product({key: axis.corners for key, axis in axes.items()})
        if trials is None or trials >= len(points):
            return points
        return [points[index] for index in np.sort(generator.permutation(len(points))[:trials])]
    grids = {k: a.values for k, a in axes.items() if isinstance(a, Choice) and a.grid}
    domains = {key: axis for key, axis in axes.items() if key not in grids}
    points = _product(grids)
    # Sampled trial by trial, so that a longer sweep begins with the trials of a shorter one.
    return [
        {**points[n % len(points)], **{k: _sample(d, generator) for k, d in domains.items()}}
        for n in range(trials or max(DEFAULT_TRIALS, len(points)))
    ]


def _product(values: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(values, row, strict=True)) for row in itertools.product(*values.values())]


def _sample(axis: Axis, generator: np.random.RandomState) -> Any:
    """Return a random value, sampled as Ray Tune does so that older sweeps keep their trials."""
    if isinstance(axis, Choice):
        return axis.values[generator.choice(np.arange(len(axis.values)), size=1)[0]]
    first, last = axis.multiples
    if axis.whole:
        return int(_between(axis, first, last + 1, generator) * (axis.step or 1))
    if axis.step is None:
        return float(_between(axis, axis.low, axis.high, generator))
    value = _between(axis, first * axis.step, last * axis.step, generator)
    return float(np.round(value / axis.step) * axis.step)


def _between(axis: Range, low: Any, high: Any, generator: np.random.RandomState) -> Any:
    """Return a random number between two ends, the upper one excluded for whole numbers.

    It computes with one-element arrays, as Ray Tune does: numpy may round exp of scalars otherwise.
    """
    if axis.whole and not axis.log:
        return generator.randint(low, high, size=1)[0]
    if not axis.log:
        return generator.uniform(low, high, size=1)[0]
    value = np.exp(generator.uniform(np.log(low), np.log(high), size=1))[0]
    return int(value) if axis.whole else value
