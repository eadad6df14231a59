"""Plot the dev scores of a sweep against each sampled setting, a plot per setting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipelines.reports import html_page
from pipelines.reports.colours import BLUE, INK, ORANGE, PAGE
from pipelines.reports.plots import hover, legend, number_axis, plot, rows_plot
from pipelines.tuning.sampled_trials import (
    TrialRow,
    is_numeric,
    metric_among,
    score,
    sorted_trials,
    text,
    values,
    varied,
)
from pipelines.tuning.state import FAILED, FINISHED

# The marks of trials: the best one, one that finished, and one that was stopped or is unfinished.
BEST: dict[str, Any] = {"marker": "o", "mfc": ORANGE, "mec": PAGE, "ms": 9, "zorder": 4}
WHOLE: dict[str, Any] = {"marker": "o", "mfc": BLUE, "mec": PAGE, "ms": 7, "zorder": 3}
CUT: dict[str, Any] = {"marker": "o", "mfc": "none", "mec": BLUE, "ms": 6, "zorder": 3}
BASELINE: dict[str, Any] = {"color": INK, "ls": "--", "lw": 1.2}
# The size of a plot in inches; three of them fill the width of a page.
WIDTH, HEIGHT = 3.5, 2.9
# Maximum number of values of a setting that have a row each.
ROWS = 30


def setting_plots(trials: Sequence[TrialRow], best: str | None, baseline: tuple[str, float]) -> str:
    """Return a legend, and a plot of the score against each setting with at least two values.

    Values that are not numbers have a row each, the best first. best: name of the best trial.
    baseline: label and score of the untouched encoder, a dashed line in every plot.
    """
    scored = [t for t in trials if score(t) is not None and t["status"] != FAILED]
    names = varied(scored)
    numeric = [name for name in names if is_numeric(scored, name)]
    if not names:
        return ""
    keys = [("best", BEST), ("finished", WHOLE), ("stopped early or unfinished", CUT)]
    shown = [(label, how | {"ls": ""}) for label, how in keys]
    small = [_numbers(scored, name, best, baseline) for name in numeric]
    return "".join(
        [
            legend([*shown, (baseline[0], BASELINE)]),
            html_page.plots(small) if small else "",
            *(_rows(scored, name, best, baseline) for name in names if name not in numeric),
        ]
    )


def _numbers(
    trials: Sequence[TrialRow], name: str, best: str | None, baseline: tuple[str, float]
) -> str:
    """Return the plot of a setting whose values are numbers, along the x axis."""

    def draw(axes: Any) -> None:
        number_axis(axes.xaxis, values(trials, name), most=5)
        for trial in trials:
            _point(axes, trial, best, float(trial["settings"][name]), score(trial))
        axes.axhline(baseline[1], **BASELINE)
        number_axis(axes.yaxis, [0.5])
        axes.set_xlabel(name)
        axes.set_ylabel(metric_among(trials).label)

    return plot(draw, WIDTH, HEIGHT)


def _rows(
    trials: Sequence[TrialRow], name: str, best: str | None, baseline: tuple[str, float]
) -> str:
    """Return the plot of a setting with a row per value: the ROWS values with the best trials."""
    ordered = sorted_trials(trials)
    labels = list(dict.fromkeys(text(t["settings"][name]) for t in ordered))
    rows = {label: row for row, label in enumerate(labels[:ROWS])}

    def draw(axes: Any) -> None:
        for trial in ordered:
            if (row := rows.get(text(trial["settings"][name]))) is not None:
                _point(axes, trial, best, score(trial), row)
        axes.axvline(baseline[1], **BASELINE)
        number_axis(axes.xaxis, [0.5])

    made = html_page.plots([rows_plot(draw, list(rows), metric_among(trials).label, name)])
    note = f"{name} has {len(labels):,} values with a score; the {ROWS} best are shown."
    return made + (html_page.paragraphs([note], "note") if len(labels) > ROWS else "")


def _point(axes: Any, trial: TrialRow, best: str | None, x: float | None, y: float | None) -> None:
    """Draw a trial as a point that shows its settings on hover."""
    how = WHOLE if trial["status"] == FINISHED else CUT
    how = BEST if trial["name"] == best else how
    (point,) = axes.plot(x, y, ls="", clip_on=False, **how)
    settings = " ".join(f"{name}={text(value)}" for name, value in trial["settings"].items())
    which = f"trial {trial['name']}, {trial['status']}"
    hover(point, f"{which}: {score(trial):.2f}; {settings}")
