"""The picture of the study: every method's average on the STS tasks, with its seeds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.stats import t

from benchmarks.study.entries import METHODS
from pipelines.reports.colours import BLUE, INK, ORANGE
from pipelines.reports.plots import number_axis, rows_plot


def picture(record: Mapping[str, Any]) -> str:
    """Return an SVG: the mean of each method, its 95 % interval over the seeds, and each seed."""
    trained = record["trained"]
    names = [e.label for e in METHODS.entries if e.label in trained]
    names.sort(key=lambda name: -float(np.mean(trained[name]["test"])))
    reference = np.mean(trained[names[-1] if "simcse-base" not in names else "simcse-base"]["test"])

    def draw(axes: Any) -> None:
        axes.axvline(reference, color=INK, lw=1, ls=":")
        for place, name in enumerate(names):
            values = np.array(trained[name]["test"])
            half = _half_width(values)
            mean = values.mean()
            axes.plot([mean - half, mean + half], [place, place], color=INK, lw=1.4)
            axes.plot(values, [place] * len(values), "o", ms=4, mfc=BLUE, mec="none", alpha=0.6)
            axes.plot([mean], [place], "|", ms=12, mec=ORANGE, mew=2)
        number_axis(axes.xaxis, [0.5])

    about = record["about"]
    tasks = ", ".join(trained[names[0]]["tasks"])
    return rows_plot(draw, names, f"average Spearman x 100 of {tasks}", f"{about['steps']} steps")


def _half_width(values: np.ndarray) -> float:
    """Return half of the 95 % interval of a mean; 0 of one value."""
    if len(values) < 2:
        return 0.0
    quantile = t.ppf(0.975, len(values) - 1)
    return float(quantile * values.std(ddof=1) / np.sqrt(len(values)))
