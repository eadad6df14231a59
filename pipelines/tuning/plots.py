"""Plot the dev scores of a sweep against each sampled setting, a plot per setting."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np

from pipelines.reports import html_page
from pipelines.reports.plots import hover, number_axis, plot, rows_plot
from pipelines.tuning.axes import FEW, Scale, scale_of, setting_axis
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
from pipelines.tuning.state import FINISHED, STOPPED
from pipelines.tuning.trial_marks import BASELINE, BEFORE, KINDS, MEAN, kind_of, marks_legend

# Maximum number of characters of all names below a small plot.
LETTERS = 30
# Maximum number of values of a setting that have a row each.
ROWS = 30
# Maximum number of distinct numbers that are treated as a grid.
GRID = 12
# The size of a plot in inches; three of them fill the width of a page.
WIDTH, HEIGHT = 3.5, 2.9
# With more trials than this, points are smaller and translucent.
MANY = 60


def setting_panels(
    trials: Sequence[TrialRow], best: str | None = None, baseline: tuple[str, float] | None = None
) -> str:
    """Return a legend, and a plot of the score against each setting with at least two values.

    The plots share an axis of scores. Settings with many or long values come last, with a row per
    value. baseline: label and score of the untouched encoder, a dashed line in every plot.
    """
    scale = scale_of(trials, best, baseline)
    names = varied(trials)
    if scale is None or not names:
        return ""
    wide = [name for name in names if not is_numeric(trials, name) and not _fits(trials, name)]
    small = [_panel(trials, name, scale) for name in names if name not in wide]
    return "".join(
        [
            marks_legend(trials, scale, any(_has_bars(trials, name) for name in names)),
            html_page.plots(small) if small else "",
            *(_rows(trials, name, scale) for name in wide),
        ]
    )


def _fits(trials: Sequence[TrialRow], name: str) -> bool:
    names = [text(value) for value in values(trials, name)]
    return len(names) <= FEW and sum(map(len, names)) <= LETTERS


def _panel(trials: Sequence[TrialRow], name: str, scale: Scale) -> str:
    """Return the plot of a setting along the x axis."""

    def draw(axes: Any) -> None:
        shown = having(trials, name)
        if is_numeric(trials, name):
            setting_axis(axes, values(trials, name))
            _points(axes, shown, [float(t["settings"][name]) for t in shown], scale)
            _line_of_means(axes, trials, name)
            if scale.shows_before:
                axes.axhline(statistics.fmean(scale.starts), **BEFORE)
        else:
            labels = [text(value) for value in values(trials, name)]
            _categories(axes, trials, name, labels, scale)
            axes.set_xticks(range(len(labels)), labels)
            axes.set_xlim(-0.5, len(labels) - 0.5)
        if scale.baseline:
            axes.axhline(scale.baseline[1], **BASELINE)
        axes.set_ylim(scale.limits)
        number_axis(axes.yaxis, [0.5])
        axes.set_xlabel(name)
        axes.set_ylabel(metric_among(trials).label)

    return plot(draw, WIDTH, HEIGHT)


def _rows(trials: Sequence[TrialRow], name: str, scale: Scale) -> str:
    """Return the plot of a setting with a row per value: the ROWS values with the best trials."""
    labels = [text(value) for value in values(trials, name)]
    shown = _best_values(trials, name)[:ROWS] if len(labels) > ROWS else labels

    def draw(axes: Any) -> None:
        _categories(axes, trials, name, shown, scale, across=True)
        if scale.baseline:
            axes.axvline(scale.baseline[1], **BASELINE)
        axes.set_xlim(scale.limits)
        number_axis(axes.xaxis, [0.5])

    made = html_page.plots([rows_plot(draw, shown, metric_among(trials).label, name)])
    note = f"{name} has {len(labels):,} values; the {ROWS} with the best trials are shown."
    return made + (html_page.paragraphs([note], "note") if len(labels) > ROWS else "")


def _best_values(trials: Sequence[TrialRow], name: str) -> list[str]:
    """Return the values of a setting as text, the value of the best trial first."""
    best: dict[str, float] = {}
    for trial in having(trials, name):
        found, value = score(trial), text(trial["settings"][name])
        best[value] = max(best.get(value, -np.inf), -np.inf if found is None else found)
    return sorted(best, key=lambda value: -best[value])


def _categories(
    axes: Any,
    trials: Sequence[TrialRow],
    name: str,
    labels: Sequence[str],
    scale: Scale,
    across: bool = False,
) -> None:
    """Draw a strip of points per value, with a bar at their mean. across: scores on the x axis."""
    finished = scores_by_value(trials, name)
    for place, value in enumerate(labels):
        shown = [t for t in having(trials, name) if text(t["settings"][name]) == value]
        spread = np.linspace(-0.14, 0.14, len(shown)) if len(shown) > 1 else [0.0]
        _points(axes, shown, [place + s for s in spread], scale, across)
        starts = [b for b in map(before, shown) if b is not None]
        if scale.shows_before and starts:
            _bar(axes, statistics.fmean(starts), place, across, BEFORE)
        if finished[value]:
            _bar(axes, statistics.fmean(finished[value]), place, across, MEAN)


def _bar(axes: Any, value: float, place: int, across: bool, how: dict[str, Any]) -> None:
    draw = axes.vlines if across else axes.hlines
    bar = draw(value, place - 0.2, place + 0.2, zorder=2.5, **how)
    hover(bar, f"mean {value:.2f}")


def has_means(trials: Sequence[TrialRow], name: str) -> bool:
    """Return whether a setting has few values, one of them with several finished trials."""
    groups = scores_by_value(trials, name)
    return len(groups) <= GRID and max(map(len, groups.values())) > 1


def _has_bars(trials: Sequence[TrialRow], name: str) -> bool:
    return not is_numeric(trials, name) or has_means(trials, name)


def _line_of_means(axes: Any, trials: Sequence[TrialRow], name: str) -> None:
    if has_means(trials, name):
        groups = scores_by_value(trials, name)
        there = [value for value in values(trials, name) if groups[text(value)]]
        means = [statistics.fmean(groups[text(value)]) for value in there]
        axes.plot(there, means, zorder=2.5, **MEAN)


def _points(
    axes: Any,
    trials: Sequence[TrialRow],
    places: Sequence[float],
    scale: Scale,
    across: bool = False,
) -> None:
    """Draw each trial as a point, or as a tick at the axis if it has no score."""
    many = {"ms": 5, "alpha": 0.7} if len(trials) > MANY else {}
    for trial, place in zip(trials, places, strict=True):
        kind, found = kind_of(trial, scale.best), score(trial)
        how = KINDS[kind] | {"ls": "", "zorder": 4 if kind == "best" else 3, "clip_on": False}
        how |= many if kind in (FINISHED, STOPPED) else {}
        if kind != "none":
            (point,) = axes.plot(*((found, place) if across else (place, found)), **how)
        elif across:
            how["marker"] = "_"
            (point,) = axes.plot(0.012, place, transform=axes.get_yaxis_transform(), **how)
        else:
            (point,) = axes.plot(place, 0.04, transform=axes.get_xaxis_transform(), **how)
        hover(point, _hover_text(trial))


def _hover_text(trial: TrialRow) -> str:
    found = score(trial)
    shown = "no score" if found is None else f"{found:.2f}"
    settings = [f"{name}={text(value)}" for name, value in trial.get("settings", {}).items()]
    return f"trial {trial.get('name')}, {trial.get('status')}: {shown}; {' '.join(settings)}"
