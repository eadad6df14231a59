"""The plot of the study: every method's average on the STS tasks, with its seeds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.stats import t

from benchmarks.study.entries import METHODS
from benchmarks.study.sections import budget
from pipelines.reports.colours import BLUE, INK, ORANGE
from pipelines.reports.plots import plot

# The untrained readouts below the methods, and their labels.
UNTRAINED = {"whitening": "whitening, not trained", "last": "mean pooling, not trained"}
UNTRAINED |= {"cls": "[CLS], not trained", "manual": "[MASK] (PromptBERT), not trained"}
# Inches of the picture, of a row, and of the axis below the rows.
WIDTH, ROW, AXIS = 7.2, 0.24, 0.95


def picture(record: Mapping[str, Any]) -> str:
    """Return an SVG: the mean of each method, its 95 % interval over the seeds, and each seed.

    The interval of an untrained readout is over the pairs of the tasks.
    """
    trained, readouts = record["trained"], record["readouts"]
    names = [e.label for e in METHODS.entries if e.label in trained]
    names.sort(key=lambda name: float(np.mean(trained[name]["test"])))
    untrained = sorted(UNTRAINED.keys() & readouts.keys(), key=lambda n: readouts[n]["score"])

    def draw(axes: Any) -> None:
        for place, name in enumerate(untrained):
            found = readouts[name]
            axes.plot([found["low"], found["high"]], [place, place], color=INK, lw=1.2)
            axes.plot([found["score"]], [place], "|", ms=11, mec=INK, mew=2)
        for place, name in enumerate(names, len(untrained)):
            values = np.array(trained[name]["test"])
            half, mean = _half_width(values), values.mean()
            axes.plot([mean - half, mean + half], [place, place], color=ORANGE, lw=1.2)
            axes.plot(values, [place] * len(values), "o", ms=4, mfc=BLUE, mec="none", alpha=0.6)
            axes.plot([mean], [place], "|", ms=11, mec=ORANGE, mew=2)
        labels = [*(UNTRAINED[name] for name in untrained), *names]
        axes.set_yticks(range(len(labels)), labels)
        axes.set_ylim(-0.6, len(labels) - 0.4)
        tasks = ", ".join(next(iter(trained.values()))["tasks"])
        made = f"{budget(record)}, {record['about']['encoder']}"
        axes.set_xlabel(f"average Spearman x 100 of {tasks}\n{made}")

    text = plot(draw, WIDTH, ROW * (len(names) + len(untrained)) + AXIS)
    # A separate file has no style sheet with the named colours.
    return re.sub(r"var\(--\w+, (#\w+)\)", r"\1", text)


def _half_width(values: np.ndarray) -> float:
    """Return half of the 95 % interval of a mean; 0 for a single value."""
    if len(values) < 2:
        return 0.0
    quantile = t.ppf(0.975, len(values) - 1)
    return float(quantile * values.std(ddof=1) / np.sqrt(len(values)))
