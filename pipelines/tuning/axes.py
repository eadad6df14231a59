"""What the axes of a sweep's pictures have in common: their style, ticks and labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from pipelines.reports.plots import STYLE
from pipelines.tuning.sampled_trials import is_logarithmic, text

SCORE = "dev Spearman x 100"
# A template's text is no formula, whatever dollars it holds.
SWEEP_STYLE = {**STYLE, "text.parse_math": False}
# Up to so many different values each have a label of their own.
FEW = 6
# A score before training further below the others than this share of their range is told, not
# drawn: the differences that matter would be pressed together.
FAR_BELOW = 1.0


def near(start: float, low: float, high: float) -> bool:
    """Whether `start` can share an axis with values from low to high without hiding them."""
    return low - start <= FAR_BELOW * max(high - low, 1.0)


def numeric_axis(axes: Any, numbers: Sequence[float]) -> None:
    """The x axis of a numeric setting: by ratios where they span much, ticks at a grid's values."""
    log = is_logarithmic(numbers)
    if log:
        axes.set_xscale("log")
    locator = log_locator(min(numbers), max(numbers)) if log else MaxNLocator(5)
    plain_ticks(axes.xaxis, locator)
    if len(numbers) <= FEW and _apart(numbers, log):
        axes.set_xticks(numbers)
    if len(numbers) > 1:
        axes.margins(x=0.08)


def log_locator(low: float, high: float) -> LogLocator:
    """Ticks of a logarithmic axis, as many as have room for their labels."""
    ratio = high / low
    return LogLocator(subs=(1, 2, 5) if ratio < 100 else (1, 3) if ratio < 1000 else (1,))


def plain_ticks(axis: Any, locator: Any) -> None:
    """Ticks labelled as the tables write the numbers."""
    axis.set_major_locator(locator)
    axis.set_major_formatter(FuncFormatter(lambda value, _: text(float(value))))
    axis.set_minor_formatter(NullFormatter())


def _apart(numbers: Sequence[float], log: bool) -> bool:
    """Whether labels at these numbers leave each other room."""
    places = np.log(numbers) if log else np.asarray(numbers, dtype=float)
    gaps = np.diff(places)
    return len(numbers) == 1 or bool(gaps.min() >= 0.15 * (places[-1] - places[0]))


def range_text(numbers: Sequence[float]) -> str:
    """One number when all are shown alike, else the least and the most."""
    low, high = f"{min(numbers):.1f}", f"{max(numbers):.1f}"
    return low if low == high else f"{low} to {high}"
