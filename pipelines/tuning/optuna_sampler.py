"""What Optuna would try next: its tree-structured Parzen estimator (Bergstra et al., NeurIPS 2011).

A suggestion is a function of the space, the seed and what is known of the samples before it. No
sampler lives on between two of them, so a sweep that was killed goes on with the same suggestions
as one that was not, as long as the same samples had ended.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pipelines.tuning.state import FAILED, FINISHED, STOPPED, UNFINISHED
from tune_spaces import Space, axes_of
from tune_spaces.axes import Choice, Range

# So many samples are drawn by chance before Optuna reckons. The mean distance to the best score
# after 12 samples of a rate, a batch and a warm-up (a smooth invented score, 60 seeds): 0.72 with
# 4, 0.77 with 3, 0.86 with 6, 1.24 with Optuna's own 10, 1.33 with chance alone.
BY_CHANCE = 4
# Optuna may ask for a sample that it had before, which would only train the same model again:
# it is asked again so often, then chance draws until there is a new one.
ASKED = 20


@dataclass(frozen=True)
class ObservedTrial:
    """What is known of a sample. drawn: Optuna's own numbers; score: of a finished one; curve: the
    dev Spearman by step of a stopped one."""

    drawn: Mapping[str, Any]
    status: str
    score: float | None = None
    curve: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Axis:
    """distribution: Optuna's; value: what a number of it stands for; numbers: all of them, None of
    a range without steps."""

    distribution: Any
    value: Callable[[Any], Any]
    numbers: range | None


class Suggestions:
    """The samples of a space, the next one chosen by those before it."""

    def __init__(self, space: Space, seed: int) -> None:
        self._axes = {path: _axis(axis) for path, axis in axes_of(space).items()}
        self._seed = seed

    def count(self) -> int | None:
        """How many different samples there are; None for infinitely many."""
        known = [len(axis.numbers) for axis in self._axes.values() if axis.numbers is not None]
        return math.prod(known) if len(known) == len(self._axes) else None

    def each_value(self, at_most: int) -> Iterator[dict[str, Any]]:
        """Samples that hold every value of the axes that have steps, of long ones `at_most`, from
        end to end."""
        first = {path: axis.value(_least(axis)) for path, axis in self._axes.items()}
        for path, axis in self._axes.items():
            numbers = axis.numbers or range(0)
            places = np.linspace(0, len(numbers) - 1, min(len(numbers), at_most))
            for place in places.round().astype(int).tolist():
                yield {**first, path: axis.value(numbers[place])}

    def sample(self, drawn: Mapping[str, Any]) -> dict[str, Any]:
        """The sample that Optuna's numbers stand for."""
        return {path: axis.value(drawn[path]) for path, axis in self._axes.items()}

    def next(self, told: Sequence[ObservedTrial]) -> dict[str, Any]:
        """Optuna's numbers for the sample after those told, none of which it is.

        There must be one: fewer are told than count() says.
        """
        known = [dict(sample.drawn) for sample in told]
        return next(drawn for drawn in self._asked(told) if drawn not in known)

    def _asked(self, told: Sequence[ObservedTrial]) -> Iterator[dict[str, Any]]:
        """What Optuna asks for, and asks for when asked again."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        distributions = {path: axis.distribution for path, axis in self._axes.items()}
        for attempt in itertools.count():
            entropy = np.random.SeedSequence([self._seed, len(told), attempt])
            seed = int(entropy.generate_state(1)[0])
            sampler = (
                optuna.samplers.TPESampler(n_startup_trials=BY_CHANCE, seed=seed)
                if attempt < ASKED
                else optuna.samplers.RandomSampler(seed=seed)
            )
            study = optuna.create_study(direction="maximize", sampler=sampler)
            study.add_trials([_trial(sample, distributions) for sample in told])
            yield dict(study.ask(distributions).params)


def _least(axis: Axis) -> Any:
    return axis.distribution.low if axis.numbers is None else axis.numbers[0]


def _trial(told: ObservedTrial, distributions: Mapping[str, Any]) -> Any:
    """A sample as Optuna knows it. It ranks the stopped below the finished, by how far they came,
    learns nothing of the failed, and takes those under way for bad, so as to try something else."""
    from optuna.trial import TrialState, create_trial

    states = {
        FINISHED: TrialState.COMPLETE,
        STOPPED: TrialState.PRUNED,
        FAILED: TrialState.FAIL,
        UNFINISHED: TrialState.RUNNING,
    }
    return create_trial(
        state=states[told.status],
        value=told.score,
        params=dict(told.drawn),
        distributions=dict(distributions),
        intermediate_values=dict(told.curve),
    )


def _axis(axis: Choice | Range) -> Axis:
    """A grid or choice by the places of its values, a range in steps by their multiples."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(axis, Choice) or len(set(axis.corners)) == 1:
        values = axis.corners
        numbers = range(len(values) if isinstance(axis, Choice) else 1)
        return Axis(CategoricalDistribution(numbers), values.__getitem__, numbers)
    (low, high), step = axis.corners, axis.step
    if step is None and not axis.whole:
        return Axis(FloatDistribution(low, high, log=axis.log), float, None)
    cast = int if axis.whole else float
    first, last = axis.multiples
    return Axis(
        IntDistribution(first, last, log=axis.log),
        lambda k: cast(min(max(k * (step or 1), low), high)),
        range(first, last + 1),
    )
