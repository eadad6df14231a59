"""Lines of a sweep: score against dropout (DenoSent, Figure 4b), and trials step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

from pipelines.plots import BLUE, INK, ORANGE, level_line, svg
from pipelines.seeds import spread
from pipelines.tracking import DEV_SPEARMAN, LOSS
from pipelines.tuning.axes import (
    SCORE,
    SWEEP_STYLE,
    log_locator,
    near,
    numeric_axis,
    plain_ticks,
    range_text,
)
from pipelines.tuning.drawn import Trial, having, is_numeric, scores_by_value, text, values

DROPOUT, LAYERS = "method.dropout", "method.layers"
_LINES = (
    (BLUE, "o"),
    (ORANGE, "s"),
    (INK, "^"),
    ("#7ea6d1", "D"),
    ("#e3a37f", "v"),
    ("#9aa5b1", "P"),
)
# More points than these of a line are averaged in groups: single losses only make it a blot.
POINTS = 150
BEST_SHADES, WORST_SHADES = ("#0b2a55", BLUE, "#7ea6d1"), (ORANGE, "#e3a37f", "#f0cdb8")

Rows = Mapping[int, Mapping[str, float]]


def dropout_curve(trials: Sequence[Trial]) -> str:
    """SVG of score against dropout, a line for each number of layers; empty without two dropouts.

    Of finished trials alone: points are means, bars the sample standard deviation over the seeds.
    """
    shown = having(trials, DROPOUT)
    groups = [(text(layers), _of_layers(shown, layers)) for layers in values(shown, LAYERS)]
    curves = {name: scores_by_value(group, DROPOUT) for name, group in groups or [("", shown)]}
    points = {p for curve in curves.values() for p, found in curve.items() if found}
    if len(points) < 2 or not is_numeric(shown, DROPOUT):
        return ""
    dropouts = values(shown, DROPOUT)
    with rc_context(SWEEP_STYLE):
        figure = Figure(figsize=(7, 3.8), layout="constrained")
        axes = figure.subplots()
        numeric_axis(axes, dropouts)
        # Bars of different lines stand beside each other.
        step = 0.008 * (max(dropouts) - min(dropouts))
        for place, (name, curve) in enumerate(curves.items()):
            aside = (place - (len(curves) - 1) / 2) * step
            _dropout_line(axes, dropouts, curve, name, place, aside)
        axes.set_xlabel(DROPOUT)
        axes.set_ylabel(SCORE)
        if groups:
            figure.legend(title=LAYERS, loc="outside right upper", frameon=False)
        return svg(figure)


def _of_layers(trials: Sequence[Trial], layers: Any) -> list[Trial]:
    return [trial for trial in trials if trial["settings"].get(LAYERS) == layers]


def _dropout_line(
    axes: Any,
    dropouts: Sequence[float],
    curve: Mapping[str, Sequence[float]],
    name: str,
    place: int,
    aside: float,
) -> None:
    there = [d for d in dropouts if curve.get(text(d))]
    stats = [spread(curve[text(d)]) for d in there]
    colour, marker = _LINES[place % len(_LINES)]
    axes.errorbar(
        [d + aside for d in there],
        [s["mean"] for s in stats],
        yerr=[s["spread"] for s in stats],
        color=colour,
        marker=marker,
        ms=6,
        lw=1.6,
        elinewidth=1.0,
        capsize=3,
        label=name,
    )


def step_curves(
    best: Sequence[tuple[str, Rows]],
    worst: Sequence[tuple[str, Rows]],
    baseline: tuple[str, float] | None = None,
) -> str:
    """SVG of dev score (left) and loss (right) by step of the best and worst trials, by label;
    baseline: label and height of a line beside the scores."""
    lines = [
        *((label, rows, shade, "-") for (label, rows), shade in zip(best, BEST_SHADES)),  # noqa: B905
        *((label, rows, shade, "--") for (label, rows), shade in zip(worst, WORST_SHADES)),  # noqa: B905
    ]
    with rc_context(SWEEP_STYLE):
        figure = Figure(figsize=(10, 3.6 + 0.22 * len(lines)), layout="constrained")
        left, right = figure.subplots(1, 2)
        for label, rows, shade, dash in reversed(lines):  # the best on top
            few = "o" if sum(DEV_SPEARMAN in row for row in rows.values()) <= 30 else None
            left.plot(*_series(rows, DEV_SPEARMAN), color=shade, ls=dash, marker=few, ms=4)
            right.plot(*_series(rows, LOSS), color=shade, ls=dash, lw=1.3, label=label)
        _dev_limits(left, [rows for _, rows, _, _ in lines], [baseline[1]] if baseline else [])
        if baseline is not None:
            level_line(left, *baseline)
        _loss_axis(right)
        for axes in (left, right):
            axes.set_xlabel("step")
        handles, labels = right.get_legend_handles_labels()
        figure.legend(
            handles[::-1], labels[::-1], loc="outside lower left", frameon=False, fontsize=9
        )
        return svg(figure)


def _series(rows: Rows, key: str) -> tuple[list[float], list[float]]:
    """(steps, values) of one number, in at most POINTS means of neighbours."""
    steps = [step for step in sorted(rows) if rows[step].get(key) is not None]
    numbers = [float(rows[step][key]) for step in steps]
    size = -(-len(steps) // POINTS) or 1
    groups = range(0, len(steps), size)
    return (
        [float(np.mean(steps[start : start + size])) for start in groups],
        [float(np.mean(numbers[start : start + size])) for start in groups],
    )


def _dev_limits(axes: Any, curves: Sequence[Rows], shown: Sequence[float]) -> None:
    """A first value far below the others is left under the axis, and told. shown: what else must
    be within the axis."""
    axes.set_ylabel(SCORE)
    starts = [rows[0][DEV_SPEARMAN] for rows in curves if DEV_SPEARMAN in rows.get(0, {})]
    later = [
        row[DEV_SPEARMAN] for r in curves for s, row in r.items() if s > 0 and DEV_SPEARMAN in row
    ]
    later += shown if later else []
    if not starts or not later or near(min(starts), min(later), max(later)):
        return
    margin = max(0.08 * (max(later) - min(later)), 0.05)
    axes.set_ylim(min(later) - margin, max(later) + margin)
    told = f"before training: {range_text(starts)}, below the axis"
    axes.set_title(told, fontsize=9, loc="left")


def _loss_axis(axes: Any) -> None:
    """By ratios where losses span much; the labels are plain numbers, as everywhere here."""
    axes.set_ylabel(LOSS)
    lines = [line.get_ydata() for line in axes.get_lines() if len(line.get_ydata())]
    low, high = (f(float(f(y)) for y in lines) if lines else 0.0 for f in (min, max))
    if low > 0 and high > 5 * low:
        axes.set_yscale("log")
        plain_ticks(axes.yaxis, log_locator(low, high))
