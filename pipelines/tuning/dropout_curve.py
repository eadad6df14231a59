"""Plot the score against the decoder's dropout, one line per depth (DenoSent, Figure 4b)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipelines.reports import html_page
from pipelines.reports.colours import LINES
from pipelines.reports.plots import legend, number_axis, plot, points
from pipelines.training.multi_seed import spread
from pipelines.tuning.axes import setting_axis
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
# 42 lines differ in colour or marker, since the numbers of colours and markers are coprime.
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def dropout_curve(trials: Sequence[TrialRow]) -> str:
    """Return a plot of score against dropout, one line per number of layers.

    It shows finished trials: points are means, bars the sample standard deviation over the seeds.
    Returns "" if fewer than two dropouts have scores.
    """
    shown = having(trials, DROPOUT)
    groups = [
        (text(layers), [trial for trial in shown if trial["settings"].get(LAYERS) == layers])
        for layers in values(shown, LAYERS)
    ]
    curves = {name: scores_by_value(group, DROPOUT) for name, group in groups or [("", shown)]}
    points = {p for curve in curves.values() for p, found in curve.items() if found}
    if len(points) < 2 or not is_numeric(shown, DROPOUT):
        return ""
    dropouts = values(shown, DROPOUT)
    # The bars of different lines are drawn side by side.
    step = min(0.008, 0.1 / len(curves)) * (max(dropouts) - min(dropouts))

    def draw(axes: Any) -> None:
        setting_axis(axes, dropouts)
        for place, (name, curve) in enumerate(curves.items()):
            aside = (place - (len(curves) - 1) / 2) * step
            _dropout_line(axes, dropouts, curve, name, place, aside)
        number_axis(axes.yaxis, [0.5])
        axes.set_xlabel(DROPOUT)
        axes.set_ylabel(metric_among(trials).label)

    keys = [(f"{LAYERS}={name}", _line(place)) for place, (name, _) in enumerate(groups)]
    return (legend(keys) if keys else "") + html_page.plots([plot(draw)])


def _line(place: int) -> dict[str, Any]:
    colour, marker = LINES[place % len(LINES)], _MARKERS[place % len(_MARKERS)]
    return {"color": colour, "marker": marker, "ms": 6, "lw": 1.6}


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
    means, spreads = [s["mean"] for s in stats], [s["spread"] for s in stats]
    xs = [d + aside for d in there]
    axes.errorbar(xs, means, yerr=spreads, elinewidth=1.0, capsize=3, **_line(place))
    texts = [
        f"{f'{LAYERS}={name}, ' if name else ''}{DROPOUT}={text(d)}: {mean:.2f} ± {spread:.2f}"
        for d, mean, spread in zip(there, means, spreads, strict=True)
    ]
    points(axes, xs, means, texts, **_line(place) | {"alpha": 0})
