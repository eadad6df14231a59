"""The next sample by Optuna's tree-structured Parzen estimator (Bergstra et al., NeurIPS 2011).

A suggestion is a function of the space, the seed and the observed samples before it, with a new
Optuna sampler each time. So a sweep that was killed gets the same suggestions as one that was not,
provided that the same samples had ended.
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

# Number of random samples before Optuna's estimator starts. Mean distance to the best score after
# 12 samples of learning rate, batch size and warm-up (smooth synthetic score, 60 seeds): 0.72 with
# 4, 0.77 with 3, 0.86 with 6, 1.24 with Optuna's default 10, 1.33 with random samples only.
BY_CHANCE = 4
# Optuna may suggest the same sample again. After this many further suggestions, samples are random
# until one is new.
ASKED = 20


@dataclass(frozen=True)
class ObservedTrial:
    """The outcome of a sample.

    params: Optuna's parameters. score: the score of a finished sample. curve: dev score by step of
    a stopped sample.
    """

    params: Mapping[str, Any]
    status: str
    score: float | None = None
    curve: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class OptunaAxis:
    """An axis of the space, with numbers for its values.

    distribution: an Optuna distribution. value: function from a number of that distribution to the
    setting's value. numbers: all numbers of the distribution, None for a continuous range.
    """

    distribution: Any
    value: Callable[[Any], Any]
    numbers: range | None


class Suggestions:
    """Suggest samples of a space, each by the outcome of the samples before it."""

    def __init__(self, space: Space, seed: int) -> None:
        self._axes = {path: _axis(axis) for path, axis in axes_of(space).items()}
        self._seed = seed

    def count(self) -> int | None:
        """Return the number of distinct samples, None if it is infinite."""
        known = [len(axis.numbers) for axis in self._axes.values() if axis.numbers is not None]
        return math.prod(known) if len(known) == len(self._axes) else None

    def each_value(self, at_most: int) -> Iterator[dict[str, Any]]:
        """Yield samples that contain each value of each stepped axis, or `at_most` values of an
        axis, evenly spaced."""
        first = {
            path: axis.value(axis.distribution.low if axis.numbers is None else axis.numbers[0])
            for path, axis in self._axes.items()
        }
        for path, axis in self._axes.items():
            numbers = axis.numbers or range(0)
            places = np.linspace(0, len(numbers) - 1, min(len(numbers), at_most))
            for place in places.round().astype(int).tolist():
                yield {**first, path: axis.value(numbers[place])}

    def sample(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the sample for Optuna's parameters."""
        return {path: axis.value(params[path]) for path, axis in self._axes.items()}

    def next(self, observed: Sequence[ObservedTrial]) -> dict[str, Any]:
        """Return Optuna's parameters of a sample that differs from all observed ones.

        The number of observed samples must be below count().
        """
        known = [dict(sample.params) for sample in observed]
        return next(params for params in self._asked(observed) if params not in known)

    def _asked(self, observed: Sequence[ObservedTrial]) -> Iterator[dict[str, Any]]:
        """Yield Optuna's suggestions."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        distributions = {path: axis.distribution for path, axis in self._axes.items()}
        for attempt in itertools.count():
            entropy = np.random.SeedSequence([self._seed, len(observed), attempt])
            seed = int(entropy.generate_state(1)[0])
            sampler = (
                optuna.samplers.TPESampler(n_startup_trials=BY_CHANCE, seed=seed)
                if attempt < ASKED
                else optuna.samplers.RandomSampler(seed=seed)
            )
            study = optuna.create_study(direction="maximize", sampler=sampler)
            study.add_trials([_trial(sample, distributions) for sample in observed])
            yield dict(study.ask(distributions).params)


def _trial(observed: ObservedTrial, distributions: Mapping[str, Any]) -> Any:
    """Return a sample as an Optuna trial.

    Optuna ranks stopped samples below finished ones, by their last step, ignores failed ones, and
    treats unfinished ones as bad, so that it tries something else.
    """
    from optuna.trial import TrialState, create_trial

    states = {
        FINISHED: TrialState.COMPLETE,
        STOPPED: TrialState.PRUNED,
        FAILED: TrialState.FAIL,
        UNFINISHED: TrialState.RUNNING,
    }
    return create_trial(
        state=states[observed.status],
        value=observed.score,
        params=dict(observed.params),
        distributions=dict(distributions),
        intermediate_values=dict(observed.curve),
    )


def _axis(axis: Choice | Range) -> OptunaAxis:
    """Return an axis with numbers for values: their indices, or multiples of a range's step."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(axis, Choice) or len(set(axis.corners)) == 1:
        values = axis.corners
        numbers = range(len(values) if isinstance(axis, Choice) else 1)
        return OptunaAxis(CategoricalDistribution(numbers), values.__getitem__, numbers)
    (low, high), step = axis.corners, axis.step
    if step is None and not axis.whole:
        return OptunaAxis(FloatDistribution(low, high, log=axis.log), float, None)
    cast = int if axis.whole else float
    first, last = axis.multiples
    return OptunaAxis(
        IntDistribution(first, last, log=axis.log),
        lambda k: cast(min(max(k * (step or 1), low), high)),
        range(first, last + 1),
    )
