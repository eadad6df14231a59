"""A plan in which Optuna chooses each sample by the scores of the samples before it.

It is one study of Optuna, kept in the journal trials/optuna.log: a sample is in it before its
trials start, so the same command continues a killed sweep with what was sampled. The scores are
read from the trials' folders. Optuna's estimator is the tree-structured Parzen estimator (Bergstra
et al., NeurIPS 2011).
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cotbert_core.errors import UserError
from cotbert_core.settings import TrainSettings, flatten
from cotbert_core.training.dev_scores import sort_key
from pipelines.tuning.state import ENDED, status_of, trained_scores
from pipelines.tuning.trial_plan import (
    DEFAULT_TRIALS,
    SEED,
    Trial,
    TrialPlan,
    settings_of,
    trial_name,
)
from tune_spaces import VARIANT, Space, axes_of, changes
from tune_spaces.axes import Axis, Choice
from tune_spaces.search_space import enough_corners

OPTUNA = "optuna"
JOURNAL_FILE = "optuna.log"
# Maximum number of corners of a space that are checked against corpus and encoder, which takes 0.2
# to 0.7 s each for MiniLM; of more corners a subset with every pair of values is checked.
CORNERS = 100
# Maximum number of values of a stepped range that are checked, evenly spaced.
CHECKED = 1000
# Number of random samples before Optuna's estimator starts. Mean distance to the best score after
# 12 samples of learning rate, batch size and warm-up (smooth synthetic score, 60 seeds): 0.72 with
# 4, 0.77 with 3, 0.86 with 6, 1.24 with Optuna's default 10, 1.33 with random samples only.
BY_CHANCE = 4
# Optuna may suggest the same sample again. After this many suggestions, samples are random until
# one is new.
ASKED = 20


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
        self._space, self._base, self._seeds = space, base, tuple(seeds)
        self._draw_seed, self._folder = draw_seed, Path()
        self._study: Any = None
        self._axes = {path: optuna_axis(axis) for path, axis in axes_of(space).items()}
        self._distributions = {path: axis.distribution for path, axis in self._axes.items()}
        samples = self._checked(samples)
        possible = [settings_of(space, base, point) for point in enough_corners(space, CORNERS)]
        for point in self._steps():
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
        import optuna
        from optuna.storages.journal import JournalFileBackend

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        journal = JournalFileBackend(str(folder / JOURNAL_FILE))
        self._folder = folder
        self._study = optuna.create_study(
            study_name="sweep",
            storage=optuna.storages.JournalStorage(journal),
            direction="maximize",
            load_if_exists=True,
        )
        while len(self.trials) < len(self._samples()) * len(self._seeds):
            self._add()

    def grow(self) -> Trial | None:
        if len(self.trials) == self.total:
            return None
        if len(self.trials) == len(self._samples()) * len(self._seeds):
            self._report_scores()
            self._ask()
        return self._add()

    def _samples(self) -> list[Any]:
        """Return Optuna's trials, without repeated ones, which alone are marked as failed."""
        from optuna.trial import TrialState

        trials = self._study.get_trials(deepcopy=False)
        return [trial for trial in trials if trial.state != TrialState.FAIL]

    def _add(self) -> Trial:
        number, seed = divmod(len(self.trials), len(self._seeds))
        params = self._samples()[number].params
        sample = {path: axis.value(params[path]) for path, axis in self._axes.items()}
        sample[SEED] = self._seeds[seed]
        name = trial_name(len(self.trials), self.total)
        self.trials[name] = Trial(name, sample, settings_of(self._space, self._base, sample))
        return self.trials[name]

    def _report_scores(self) -> None:
        """Give Optuna the mean score over the seeds of each sample whose trials have ended.

        Samples without a score stay unfinished for Optuna, which avoids what is near them.
        """
        names, size = list(self.trials), len(self._seeds)
        for number, sample in enumerate(self._samples()):
            folders = [self._folder / name for name in names[number * size : (number + 1) * size]]
            if not sample.state.is_finished() and all(status_of(f) in ENDED for f in folders):
                score = statistics.fmean(map(_best_score, folders))
                if math.isfinite(score):
                    self._study.tell(sample.number, score)

    def _ask(self) -> None:
        """Add a sample to the study that differs from all earlier ones.

        Each suggestion has a new sampler, whose seed is the number of suggestions before it, so a
        sweep that was killed gets the same ones as a sweep that was not.
        """
        from optuna.samplers import RandomSampler, TPESampler
        from optuna.trial import TrialState

        known = [sample.params for sample in self._samples()]
        for attempt in itertools.count():
            count = len(self._study.get_trials(deepcopy=False))
            seed = int(np.random.SeedSequence([self._draw_seed, count]).generate_state(1)[0])
            tpe = TPESampler(n_startup_trials=BY_CHANCE, seed=seed)
            self._study.sampler = tpe if attempt < ASKED else RandomSampler(seed=seed)
            asked = self._study.ask(self._distributions)
            if asked.params not in known:
                return
            self._study.tell(asked, state=TrialState.FAIL)

    def _checked(self, samples: int | None) -> int:
        """Return the number of samples; UserError if the space has fewer or samples the seed."""
        if SEED in self._space.settings:
            raise UserError(
                f"space {self._space.name} samples the seed, and no seed is better than another: "
                f"leave --search {OPTUNA} out"
            )
        different = math.prod(axis.count for axis in self._axes.values())
        samples = samples or int(min(DEFAULT_TRIALS, different))
        if different < samples:
            raise UserError(
                f"trials is {samples} and space {self._space.name} has {different} "
                f"different samples: give fewer, or leave --search {OPTUNA} out to run each of them"
            )
        return samples

    def _steps(self) -> Iterator[dict[str, Any]]:
        """Yield samples with the values of each range between whose valid ends there may be invalid
        ones, such as an indivisible batch size or one with a fraction."""
        from optuna.distributions import FloatDistribution, IntDistribution

        first = {path: axis.corners[0] for path, axis in axes_of(self._space).items()}
        for path, axis in self._axes.items():
            if isinstance(ends := axis.distribution, IntDistribution):
                numbers = np.linspace(ends.low, ends.high, min(int(axis.count), CHECKED))
                for number in numbers.round().astype(int).tolist():
                    yield {**first, path: axis.value(number)}
            elif isinstance(ends, FloatDistribution):
                yield {**first, path: math.nextafter(ends.low, ends.high)}


def _best_score(folder: Path) -> float:
    """Return the best dev score of a trial after its first step; nan if it has none."""
    return max(trained_scores(folder).values(), key=sort_key, default=math.nan)


@dataclass(frozen=True)
class OptunaAxis:
    """An axis of the space, with numbers for its values.

    distribution: an Optuna distribution. value: function from a number of that distribution to the
    setting's value. count: number of values, infinite for a continuous range.
    """

    distribution: Any
    value: Callable[[Any], Any]
    count: float


def optuna_axis(axis: Axis) -> OptunaAxis:
    """Return an axis with numbers for values: their indices, or multiples of a range's step."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    values = axis.corners
    if isinstance(axis, Choice) or len(set(values)) == 1:
        count = len(values) if isinstance(axis, Choice) else 1
        return OptunaAxis(CategoricalDistribution(range(count)), values.__getitem__, count)
    (low, high), step = values, axis.step
    if step is None and not axis.whole:
        return OptunaAxis(FloatDistribution(low, high, log=axis.log), float, math.inf)
    cast = int if axis.whole else float
    first, last = axis.multiples
    return OptunaAxis(
        IntDistribution(first, last, log=axis.log),
        lambda k: cast(min(max(k * (step or 1), low), high)),
        last - first + 1,
    )
