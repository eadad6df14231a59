"""Which trials a sweep has: here all of them, drawn on the driver before anything starts.

A trial is known by its place in the plan, so a sweep that was killed is the same sweep when the
same command goes on with it: what a trial draws depends on the space, the seed and the place alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cotbert_core.errors import UserError
from cotbert_core.settings import TrainSettings, flatten, override
from tune_spaces import Space, axes_of, changes, size
from tune_spaces.axes import Axis, Choice, Range

# Of a space with a continuous axis, when --trials does not say how many.
DEFAULT_TRIALS = 12
SEED = "seed"
# How trials are chosen that are all known before the first: every point of the space, or a sample.
GRID, RANDOM = "grid", "random"


@dataclass(frozen=True)
class Trial:
    """name: its folder; sample: what was drawn for it, with the seed; settings: what it runs."""

    name: str
    sample: Mapping[str, Any]
    settings: TrainSettings

    @property
    def told(self) -> str:
        """What was drawn, in a line: each setting by its last name."""
        cells = (
            f"{key.rpartition('.')[2]}={f'{value:.4g}' if isinstance(value, float) else value}"
            for key, value in self.sample.items()
        )
        return " ".join(cells)


@dataclass
class Plan:
    """The trials of a sweep, which may become more while it runs.

    trials: those that are known, by name. total: how many there will be. possible: settings to
    check before the first trial starts. record: what two runs of one sweep have in common.
    search: how the trials are chosen: `grid`, `random` or `optuna`.
    """

    trials: dict[str, Trial]
    total: int
    possible: list[TrainSettings]
    record: dict[str, Any]
    search: str = GRID

    def open(self, folder: Path) -> None:
        """Take up what an earlier run of the sweep left in its folder of trials."""

    def grow(self) -> Trial | None:
        """One more trial, chosen by what has become of those before it; None for no more."""
        return None


def drawn_plan(
    space: Space, base: TrainSettings, trials: int | None, seeds: Sequence[int], draw_seed: int
) -> Plan:
    """A plan whose trials are all known."""
    planned = {t.name: t for t in plan_trials(space, base, trials, seeds, draw_seed)}
    record = {"trials": {name: flatten(trial.settings) for name, trial in planned.items()}}
    points = size(space)
    search = RANDOM if points is None or (trials or points) < points else GRID
    return Plan(planned, len(planned), [t.settings for t in planned.values()], record, search)


def plan_trials(
    space: Space, base: TrainSettings, trials: int | None, seeds: Sequence[int], draw_seed: int
) -> list[Trial]:
    """All trials of a sweep: the whole grid, or `trials` of it, or as many draws; each under every
    seed. UserError lists the first sample that makes no settings."""
    if len(seeds) > 1 and SEED in space.settings:
        raise UserError(f"space {space.name} draws the seed itself: leave --seeds out")
    samples = draw(space, trials, draw_seed)
    planned: list[Trial] = []
    for sample, seed in itertools.product(samples, seeds):
        whole = dict(sample) if SEED in sample else {**sample, SEED: seed}
        name = trial_name(len(planned), len(samples) * len(seeds))
        planned.append(Trial(name, whole, settings_of(space, base, whole)))
    return planned


def trial_name(place: int, total: int) -> str:
    """0000, 0001, ...: names sort as the trials began."""
    return f"{place:0{max(4, len(str(total)))}}"


def settings_of(space: Space, base: TrainSettings, sample: Mapping[str, Any]) -> TrainSettings:
    """The settings of a sample; UserError names it when it makes none."""
    try:
        return override(base, changes(space, sample))
    except UserError as error:
        shown = ", ".join(f"{key}={value}" for key, value in sample.items())
        raise UserError(f"space {space.name} with {shown}: {error}") from None


def draw(space: Space, trials: int | None, seed: int) -> list[dict[str, Any]]:
    """The samples. Of a grid all points in order, or `trials` of them by chance, each once; with a
    continuous axis the grid's points in turn, each with a draw of its own."""
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
    # One trial after the other, so that a longer sweep begins with the trials of a shorter one.
    return [
        {**points[n % len(points)], **{k: _draw(d, generator) for k, d in domains.items()}}
        for n in range(trials or max(DEFAULT_TRIALS, len(points)))
    ]


def _product(values: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(values, row, strict=True)) for row in itertools.product(*values.values())]


def _draw(axis: Axis, generator: np.random.RandomState) -> Any:
    """Draw a value as Ray Tune draws it: a sweep of an earlier version has the same trials.

    A number is one of Python's own: numpy's would not be the same after a trip through JSON.
    """
    if isinstance(axis, Choice):
        value = axis.values[generator.choice(np.arange(len(axis.values)), size=1)[0]]
        return value.item() if isinstance(value, np.generic) else value
    first, last = axis.multiples
    if axis.whole:
        return int(_between(axis, first, last + 1, generator) * (axis.step or 1))
    if axis.step is None:
        return float(_between(axis, axis.low, axis.high, generator))
    value = _between(axis, first * axis.step, last * axis.step, generator)
    return float(np.round(value / axis.step) * axis.step)


def _between(axis: Range, low: Any, high: Any, generator: np.random.RandomState) -> Any:
    """Draw a number between two ends, of whole numbers without the upper one.

    Arrays of one number, as in Ray Tune: numpy's exp may round a single number otherwise.
    """
    if axis.whole and not axis.log:
        return generator.randint(low, high, size=1)[0]
    if not axis.log:
        return generator.uniform(low, high, size=1)[0]
    value = np.exp(generator.uniform(np.log(low), np.log(high), size=1))[0]
    return int(value) if axis.whole else value
