"""The common style, ticks and labels of the axes of a sweep's plots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from pipelines.reports.plots import STYLE
from pipelines.tuning.sampled_trials import is_logarithmic, text

# Dollar signs in a template's text must not be read as formulas.
SWEEP_STYLE = {**STYLE, "text.parse_math": False}
# Up to this many different values have a label each.
FEW = 6
# A score before training that is further below the others than this share of their range is only
# named in the legend, since it would compress the differences that matter.
FAR_BELOW = 1.0


def near(start: float, low: float, high: float) -> bool:
    """Return whether `start` fits on an axis with values from low to high without hiding them."""
    return low - start <= FAR_BELOW * max(high - low, 1.0)


def numeric_axis(axes: Any, numbers: Sequence[float]) -> None:
    """Set up the x axis of a numeric setting: logarithmic for a wide range, ticks at few values."""
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
    """Return the ticks of a logarithmic axis, as many as there is space for labels."""
    ratio = high / low
    return LogLocator(subs=(1, 2, 5) if ratio < 100 else (1, 3) if ratio < 1000 else (1,))


def plain_ticks(axis: Any, locator: Any) -> None:
    """Label ticks in the number format of the tables."""
    axis.set_major_locator(locator)
    axis.set_major_formatter(FuncFormatter(lambda value, _: text(float(value))))
    axis.set_minor_formatter(NullFormatter())


def _apart(numbers: Sequence[float], log: bool) -> bool:
    """Return whether labels at these numbers do not overlap."""
    places = np.log(numbers) if log else np.asarray(numbers, dtype=float)
    gaps = np.diff(places)
    return len(numbers) == 1 or bool(gaps.min() >= 0.15 * (places[-1] - places[0]))


def range_text(numbers: Sequence[float]) -> str:
    """Return the range of numbers as text, or a single number if both ends look the same."""
    low, high = f"{min(numbers):.1f}", f"{max(numbers):.1f}"
    return low if low == high else f"{low} to {high}"
