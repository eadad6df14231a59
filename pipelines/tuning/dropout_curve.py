"""Plot the score against the decoder's dropout, a line for each depth (DenoSent, Figure 4b)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from pipelines.reports.plots import BLUE, INK, ORANGE, svg
from pipelines.training.multi_seed import spread
from pipelines.tuning.axes import SWEEP_STYLE, numeric_axis
from pipelines.tuning.sampled_trials import (
    TrialRow,
    having,
    is_numeric,
    metric_among,
    scores_by_value,
    text,
    values,
)

DROPOUT, LAYERS = "method.dropout", "method.layers"
_LINES = (
    (BLUE, "o"),
    (ORANGE, "s"),
    (INK, "^"),
    ("#7ea6d1", "D"),
    ("#e3a37f", "v"),
    ("#9aa5b1", "P"),
)


def dropout_curve(trials: Sequence[TrialRow]) -> str:
    """Return an SVG of score against dropout, a line for each number of layers.

    It shows finished trials: points are means, bars the sample standard deviation over the seeds.
    The text is empty if fewer than two dropouts have scores.
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
        # Bars of different lines are next to each other.
        step = 0.008 * (max(dropouts) - min(dropouts))
        for place, (name, curve) in enumerate(curves.items()):
            aside = (place - (len(curves) - 1) / 2) * step
            _dropout_line(axes, dropouts, curve, name, place, aside)
        axes.set_xlabel(DROPOUT)
        axes.set_ylabel(metric_among(trials).label)
        if groups:
            figure.legend(title=LAYERS, loc="outside right upper", frameon=False)
        return svg(figure)


def _of_layers(trials: Sequence[TrialRow], layers: Any) -> list[TrialRow]:
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
