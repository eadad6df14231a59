"""Plot the dev scores of a sweep against each sampled setting, a small panel per setting."""

from __future__ import annotations

import statistics
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pipelines.reports.plots import BLUE, COLUMNS, INK, ORANGE, svg
from pipelines.tuning.axes import FEW, SWEEP_STYLE, near, numeric_axis, range_text
from pipelines.tuning.sampled_trials import (
    TrialRow,
    before,
    having,
    is_numeric,
    metric_among,
    score,
    scores_by_value,
    text,
    values,
    varied,
)
from pipelines.tuning.state import FAILED, FINISHED, STOPPED

GREY = "#9aa5b1"
# Most characters of all names below a small panel.
LETTERS = 30
# Up to this many different numbers are treated as a grid's.
GRID = 12
_KINDS: dict[str, dict[str, Any]] = {
    FINISHED: {"marker": "o", "mfc": BLUE, "mec": "white", "ms": 7.5, "mew": 0.6},
    STOPPED: {"marker": "o", "mfc": "none", "mec": BLUE, "ms": 6.5, "mew": 1.3},
    "unfinished": {"marker": "s", "mfc": "none", "mec": GREY, "ms": 6, "mew": 1.3},
    "best": {"marker": "o", "mfc": ORANGE, "mec": "white", "ms": 9.5, "mew": 0.6},
    "none": {"marker": "|", "mfc": INK, "mec": INK, "ms": 9, "mew": 1.6},
}
_BASELINE: dict[str, Any] = {"color": INK, "ls": "--", "lw": 1.2}
_MEANS = "mean of finished"
_NAMES = {FINISHED: "finished", STOPPED: "stopped early", "unfinished": "unfinished"}


@dataclass(frozen=True)
class Scale:
    """The scores that all panels of a sweep share."""

    low: float
    high: float
    starts: Sequence[float]  # the scores before training that are known
    best: str | None  # a trial's name
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


def setting_panels(
    trials: Sequence[TrialRow],
    best: str | None = None,
    baseline: tuple[str, float] | None = None,
) -> list[str]:
    """Return SVGs of the score against each setting with at least two values, a panel per setting.

    Small panels share an SVG; a setting with many or long names has its own. baseline: label and
    score of the untouched encoder, a dashed line in every panel.
    """
    scale = scale_of(trials, best, baseline)
    if scale is None:
        return []
    names = varied(trials)
    wide = [name for name in names if not is_numeric(trials, name) and not _fits(trials, name)]
    small = [name for name in names if name not in wide]
    pictures = [_small_panels(trials, small, scale)] if small else []
    return pictures + [_strip(trials, name, scale) for name in wide]


def _fits(trials: Sequence[TrialRow], name: str) -> bool:
    names = [text(value) for value in values(trials, name)]
    return len(names) <= FEW and sum(map(len, names)) <= LETTERS


def _small_panels(trials: Sequence[TrialRow], names: Sequence[str], scale: Scale) -> str:
    columns = min(len(names), COLUMNS)
    lines = -(-len(names) // columns)
    width = {1: 6.0, 2: 4.6, 3: 3.4}[columns]
    with rc_context(SWEEP_STYLE):
        figure = Figure(figsize=(width * columns, 0.4 + 2.9 * lines), layout="constrained")
        grid = figure.subplots(lines, columns, sharey=True, squeeze=False).flat
        for place, name in enumerate(names):
            axes = grid[place]
            shown = having(trials, name)
            if is_numeric(trials, name):
                numeric_axis(axes, values(trials, name))
                _points(axes, shown, [float(t["settings"][name]) for t in shown], scale)
                _line_of_means(axes, trials, name)
                if scale.shows_before:
                    axes.axhline(statistics.fmean(scale.starts), color=GREY, lw=1.0)
            else:
                _categories(axes, trials, name, scale)
            if scale.baseline:
                axes.axhline(scale.baseline[1], **_BASELINE)
            axes.set_ylim(scale.limits)
            axes.set_xlabel(name)
            if place % columns == 0:
                axes.set_ylabel(metric_among(trials).label)
        for axes in list(grid)[len(names) :]:
            axes.remove()
        means = any(not is_numeric(trials, n) or has_means(trials, n) for n in names)
        _legend(figure, trials, scale, means, columns=3 if columns == 1 else 5)
        return svg(figure)


def _strip(trials: Sequence[TrialRow], name: str, scale: Scale) -> str:
    """Return an SVG with a line for each category, next to its full name."""
    count = len(values(trials, name))
    with rc_context(SWEEP_STYLE):
        figure = Figure(figsize=(9, 1.2 + 0.34 * count), layout="constrained")
        axes = figure.subplots()
        _categories(axes, trials, name, scale, across=True)
        if scale.baseline:
            axes.axvline(scale.baseline[1], **_BASELINE)
        axes.set_xlim(scale.limits)
        axes.set_xlabel(metric_among(trials).label)
        axes.set_title(name, fontsize=11, loc="left")
        _legend(figure, trials, scale, True, columns=5, across=True)
        return svg(figure)


def _categories(
    axes: Any, trials: Sequence[TrialRow], name: str, scale: Scale, across: bool = False
) -> None:
    """Plot a strip of points for each value, with a bar at their mean. across: scores on x."""
    names = [text(value) for value in values(trials, name)]
    finished = scores_by_value(trials, name)
    for place, value in enumerate(names):
        shown = [t for t in having(trials, name) if text(t["settings"][name]) == value]
        spread = np.linspace(-0.14, 0.14, len(shown)) if len(shown) > 1 else [0.0]
        _points(axes, shown, [place + s for s in spread], scale, across)
        starts = [b for b in map(before, shown) if b is not None]
        if scale.shows_before and starts:
            _bar(axes, statistics.fmean(starts), place, across, color=GREY, lw=1.0)
        if finished[value]:
            _bar(axes, statistics.fmean(finished[value]), place, across, color=INK, lw=2.0)
    labels = ["\n".join(textwrap.wrap(n, 60, max_lines=2, placeholder=" …")) for n in names]
    if across:
        axes.set_yticks(range(len(names)), labels)
        axes.tick_params(axis="y", pad=8)  # the font of a viewer may be wider
        axes.set_ylim(len(names) - 0.5, -0.5)
    else:
        axes.set_xticks(range(len(names)), labels)
        axes.set_xlim(-0.5, len(names) - 0.5)


def _bar(axes: Any, value: float, place: int, across: bool, **how: Any) -> None:
    draw = axes.vlines if across else axes.hlines
    draw(value, place - 0.3, place + 0.3, zorder=2.5, **how)


def has_means(trials: Sequence[TrialRow], name: str) -> bool:
    """Return whether numbers are a grid's: few values, one with several finished trials."""
    groups = scores_by_value(trials, name)
    return len(groups) <= GRID and max(map(len, groups.values())) > 1


def _line_of_means(axes: Any, trials: Sequence[TrialRow], name: str) -> None:
    if has_means(trials, name):
        groups = scores_by_value(trials, name)
        there = [value for value in values(trials, name) if groups[text(value)]]
        means = [statistics.fmean(groups[text(value)]) for value in there]
        axes.plot(there, means, color=INK, lw=1.4, zorder=2.5)


def _points(
    axes: Any,
    trials: Sequence[TrialRow],
    places: Sequence[float],
    scale: Scale,
    across: bool = False,
) -> None:
    """Plot each trial as a point, or as a tick at the axis if it has no score."""
    for trial, place in zip(trials, places, strict=True):
        kind, found = kind_of(trial, scale.best), score(trial)
        how = dict(_KINDS[kind], ls="", zorder=4 if kind == "best" else 3, clip_on=False)
        if kind != "none":
            axes.plot(*((found, place) if across else (place, found)), **how)
        elif across:
            how["marker"] = "_"
            axes.plot(0.012, place, transform=axes.get_yaxis_transform(), **how)
        else:
            axes.plot(place, 0.04, transform=axes.get_xaxis_transform(), **how)


def kind_of(trial: TrialRow, best: str | None) -> str:
    """Return how a trial is plotted: "best", its status, or "none" if it has no score."""
    if trial.get("status") == FAILED or score(trial) is None:
        return "none"
    if best is not None and trial.get("name") == best:
        return "best"
    return trial["status"] if trial.get("status") in _NAMES else "unfinished"


def _legend(
    figure: Figure,
    trials: Sequence[TrialRow],
    scale: Scale,
    means: bool,
    columns: int,
    across: bool = False,
) -> None:
    """Draw the legend above the panels, with the number of trials of each kind."""
    handles = [Line2D([], [], ls="", label=n, **_KINDS[k]) for k, n in _labels(trials, scale.best)]
    if across and handles and handles[-1].get_marker() == "|":
        handles[-1].set_marker("_")
    if means and across:
        bar = Line2D([], [], color=INK, ls="", label=_MEANS, marker="|", ms=12, mew=2.0)
        handles.append(bar)
    elif means:
        handles.append(Line2D([], [], color=INK, lw=2.0, label=_MEANS))
    if scale.starts:
        below = "" if scale.shows_before else ", below the axis"
        label = f"before training ({range_text(scale.starts)}{below})"
        handles.append(Line2D([], [], color=GREY, lw=1.0, label=label))
    if scale.baseline:
        handles.append(Line2D([], [], label=scale.baseline[0], **_BASELINE))
    figure.legend(
        handles=handles,
        loc="outside upper left",
        ncols=-(-len(handles) // -(-len(handles) // columns)),  # rows of equal length
        frameon=False,
        fontsize=9,
        handletextpad=0.4,
        columnspacing=1.4,
    )


def _labels(trials: Sequence[TrialRow], best: str | None) -> list[tuple[str, str]]:
    """Return (kind, label) of each kind of point in the plot."""
    kinds = Counter(kind_of(trial, best) for trial in trials)
    by_status = Counter(kind_of(trial, None) for trial in trials)
    failed = sum(trial.get("status") == FAILED for trial in trials)
    scoreless = kinds["none"] - failed
    lost = [f"{failed} failed"] * (failed > 0) + [f"{scoreless} without a score"] * (scoreless > 0)
    names = [("best", "best")] * (kinds["best"] > 0)
    names += [(k, f"{n} ({by_status[k]})") for k, n in _NAMES.items() if by_status[k]]
    return names + [("none", ", ".join(lost))] * bool(lost)
