"""All settings of a sweep at once: parallel axes, and each trial a line over them to its score."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pipelines.plots import BLUE, INK, ORANGE, svg
from pipelines.tuning.axes import FEW, SCORE, SWEEP_STYLE, log_locator
from pipelines.tuning.drawn import (
    Trial,
    is_logarithmic,
    is_numeric,
    score,
    sorted_trials,
    text,
    values,
    varied,
)
from pipelines.tuning.state import FAILED, FINISHED

# Low scores to high ones; the best trial is drawn in ORANGE over them.
SHADES = LinearSegmentedColormap.from_list("score", ("#cbd8e6", "#7ea6d1", BLUE, "#0b2a55"))
# Letters in a line of a name beside an inner axis, and beside the first, which has the margin;
# with more names than MANY on an axis there is room for one line each.
INNER, OUTER, MANY = 15, 46, 8


@dataclass(frozen=True)
class Axis:
    """One parallel axis: where a value lies from 0 to 1, and its labels."""

    name: str
    place: Callable[[Any], float]
    ticks: Sequence[tuple[float, str]]


def parallel_coordinates(trials: Sequence[Trial], best: str | None = None) -> str:
    """SVG; empty for less than two settings or two trials with a score.

    A failed trial has no line; that of one which did not finish is dashed.
    """
    shown = [t for t in sorted_trials(trials) if score(t) is not None and t["status"] != FAILED]
    names = varied(shown)
    # A trial that lacks one of the settings has no place on its axis.
    shown = [t for t in shown if all(name in t["settings"] for name in names)]
    if len(names) < 2 or len(shown) < 2:
        return ""
    names.sort(key=lambda name: -_longest(shown, name))  # the longest have the margin's room
    axes_of = [_axis(name, is_numeric(shown, name), values(shown, name)) for name in names]
    found = [score(t) or 0.0 for t in shown]
    last = _linear(SCORE, min(found), max(found))
    height = max(3.6, 0.3 * max(len(a.ticks) for a in axes_of))
    with rc_context(SWEEP_STYLE | {"axes.grid": False}):
        figure = Figure(figsize=(min(9.0, 1.6 * len(names) + 3.0), height))
        axes = figure.subplots()
        _frame(axes, len(names))
        for trial in reversed(shown):  # the better over the worse
            marks = [a.place(trial["settings"][a.name]) for a in axes_of]
            shade = SHADES(last.place(score(trial)))
            _line(axes, [*marks, last.place(score(trial))], trial, shade, best)
        for place, axis in enumerate(axes_of):
            _labels(axes, place, axis, OUTER if place == 0 else INNER)
        _score_axis(axes, len(names), last)
        return svg(figure)


def _longest(trials: Sequence[Trial], name: str) -> int:
    return max(len(text(value)) for value in values(trials, name))


def _axis(name: str, numeric: bool, found: Sequence[Any]) -> Axis:
    if not numeric:
        return _ordered(name, found)
    if is_logarithmic(found):
        return _log(name, min(found), max(found), found)
    return _linear(name, min(found), max(found), found)


def _ordered(name: str, found: Sequence[Any]) -> Axis:
    """Categories from top to bottom."""
    places = {text(v): 1 - n / max(1, len(found) - 1) for n, v in enumerate(found)}
    return Axis(name, lambda value: places[text(value)], [(p, n) for n, p in places.items()])


def _linear(name: str, low: float, high: float, grid: Sequence[float] = ()) -> Axis:
    def place(value: float) -> float:
        return (value - low) / (high - low) if high > low else 0.5

    return Axis(name, place, _ticks(place, low, high, grid, MaxNLocator(5)))


def _log(name: str, low: float, high: float, grid: Sequence[float]) -> Axis:
    def place(value: float) -> float:
        return float(np.log(value / low) / np.log(high / low))

    return Axis(name, place, _ticks(place, low, high, grid, log_locator(low, high)))


def _ticks(
    place: Callable[[float], float], low: float, high: float, grid: Sequence[float], locator: Any
) -> list[tuple[float, str]]:
    """Labels at the values of a grid, else at round numbers; one is left out beside another."""
    marks = grid if 0 < len(grid) <= FEW else locator.tick_values(low, high)
    kept: list[tuple[float, str]] = []
    for mark in marks:
        where = place(mark)
        if -0.001 <= where <= 1.001 and (not kept or where - kept[-1][0] >= 0.06):
            kept.append((where, text(float(mark))))
    return kept or [(0.5, text(low))]


def _frame(axes: Any, count: int) -> None:
    axes.set_axis_off()
    axes.set_xlim(-0.05, count + 0.05)
    axes.set_ylim(-0.04, 1.04)
    axes.vlines(range(count), 0, 1, color=INK, lw=1.0, zorder=3)


def _line(axes: Any, marks: Sequence[float], trial: Trial, shade: Any, best: str | None) -> None:
    is_best = best is not None and trial.get("name") == best
    axes.plot(
        range(len(marks)),
        marks,
        color=ORANGE if is_best else shade,
        lw=2.6 if is_best else 1.4,
        ls="-" if trial["status"] == FINISHED else (0, (4, 2)),
        zorder=2.5 if is_best else 2,
    )


def _labels(axes: Any, place: int, axis: Axis, letters: int) -> None:
    """Values to the left of their axis, its name above."""
    lines = 1 if len(axis.ticks) > MANY else 2
    for where, name in axis.ticks:
        shown = "\n".join(textwrap.wrap(name, letters, max_lines=lines, placeholder=" …")) or name
        axes.plot([place - 0.012, place], [where, where], color=INK, lw=1.0, zorder=3)
        axes.annotate(
            shown,
            (place, where),
            (-6, 0),
            textcoords="offset points",
            ha="right",
            va="center",
            fontsize=9,
            zorder=4,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.8},
        )
    _title(axes, place, axis.name)


def _title(axes: Any, place: float, name: str) -> None:
    folded = name.replace(".", ".\n", 1) if len(name) > 10 else name
    axes.annotate(
        folded, (place, 1), (0, 17), textcoords="offset points", ha="center", fontsize=9.5
    )


def _score_axis(axes: Any, place: int, axis: Axis) -> None:
    """The score's axis is the key of the colours too."""
    heights = np.linspace(0, 1, 65)
    pieces = [[(place, max(0, low - 0.01)), (place, high)] for low, high in pairwise(heights)]
    strip = LineCollection(pieces, array=heights[:-1], cmap=SHADES, norm=Normalize(0, 1), lw=7)
    axes.add_collection(strip)
    strip.set_zorder(3)
    for where, name in axis.ticks:
        axes.annotate(
            name, (place, where), (8, 0), textcoords="offset points", va="center", fontsize=9
        )
    _title(axes, place, SCORE.replace(" x", "\nx"))
