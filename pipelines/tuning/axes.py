"""The axes of a sweep's plots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.reports.plots import is_logarithmic, number_axis
from pipelines.tuning.sampled_trials import TrialRow, before, score

# Maximum number of distinct values that are labelled individually.
FEW = 6
# A score before training that is below the others by more than this multiple of their range is only
# given in the legend: on the axis it would compress the differences that matter.
FAR_BELOW = 1.0


def near(start: float, low: float, high: float) -> bool:
    """Return whether an axis from low to high can include `start` without compressing the rest."""
    return low - start <= FAR_BELOW * max(high - low, 1.0)


@dataclass(frozen=True)
class Scale:
    """The axis of scores that all plots of a sweep share."""

    low: float
    high: float
    starts: Sequence[float]  # the known scores before training
    best: str | None  # the name of the best trial
    baseline: tuple[str, float] | None = None  # label and score of the untouched encoder

    @property
    def shows_before(self) -> bool:
        return bool(self.starts) and near(min(self.starts), self.low, self.high)

    @property
    def limits(self) -> tuple[float, float]:
        shown = [self.low, self.high, *(self.starts if self.shows_before else ())]
        shown += [self.baseline[1]] if self.baseline else []
        margin = max(0.08 * (max(shown) - min(shown)), 0.05)
        return min(shown) - 1.6 * margin, max(shown) + margin


def scale_of(
    trials: Sequence[TrialRow], best: str | None, baseline: tuple[str, float] | None = None
) -> Scale | None:
    """Return the scale of a sweep; None if no trial has a score."""
    found = [s for s in map(score, trials) if s is not None]
    starts = [b for b in map(before, trials) if b is not None]
    if not found:
        return None
    return Scale(min(found), max(found), starts, best, baseline)


def setting_axis(axes: Any, numbers: Sequence[float]) -> None:
    """Set up the x axis of a numeric setting; a few values that are far apart get a tick each."""
    number_axis(axes.xaxis, numbers, most=5)
    if len(numbers) <= FEW and _apart(numbers):
        axes.set_xticks(numbers)
    if len(numbers) > 1:
        axes.margins(x=0.08)


def _apart(numbers: Sequence[float]) -> bool:
    """Return whether labels at these numbers do not overlap."""
    places = np.log(numbers) if is_logarithmic(numbers) else np.asarray(numbers, dtype=float)
    gaps = np.diff(places)
    return len(numbers) == 1 or bool(gaps.min() >= 0.15 * (places[-1] - places[0]))


def range_text(numbers: Sequence[float]) -> str:
    """Return the range of numbers as text, or a single number if both ends look the same."""
    low, high = f"{min(numbers):.1f}", f"{max(numbers):.1f}"
    return low if low == high else f"{low} to {high}"
