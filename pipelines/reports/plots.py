"""Plots of the reports, as SVG text for an HTML page.

Matplotlib's objects are used directly, since pyplot has global state and may look for a screen.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

from pipelines.recording.dev_metric import metric_in
from pipelines.recording.tracking import LOSS

INK, BLUE, ORANGE, GRID = "#1f2933", "#2563a8", "#c2571a", "#e3e7eb"
# Most panels in a row, the width of a panel in inches by the number of columns, and most letters in
# a line of a title.
COLUMNS, _WIDTHS, TITLE_WIDTH = 3, {1: 6.0, 2: 5.0, 3: 3.7}, 38
# More points are drawn as an image inside the SVG, since each shape takes 100 bytes.
VECTOR_POINTS, DPI = 5000, 160
_COSINE = "predicted cosine"
STYLE = {
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#9aa5b1",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "figure.constrained_layout.hspace": 0.08,
    "grid.color": GRID,
    "xtick.color": INK,
    "ytick.color": INK,
    "svg.fonttype": "none",  # text stays text: small, sharp and searchable
    "svg.hashsalt": "cotbert",
}


def svg(figure: Figure) -> str:
    """Return a figure as SVG text, always the same for the same figure."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", dpi=DPI, metadata={"Date": None}, bbox_inches="tight")
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def training_curves(
    rows: Mapping[int, Mapping[str, float]], baseline: tuple[str, float] | None = None
) -> str:
    """Return an SVG of loss (left, logarithmic) and dev score (right) by step.

    baseline: label and height of a horizontal line.
    """
    with rc_context(STYLE):
        figure = Figure(figsize=(10, 3.4), layout="constrained")
        left, right = figure.subplots(1, 2)
        _line(left, rows, LOSS, BLUE, "", "loss")
        if min((r[LOSS] for r in rows.values() if LOSS in r), default=0) > 0:
            left.set_yscale("log")
        metric = metric_in(name for row in rows.values() for name in row)
        _line(right, rows, metric.name, ORANGE, "o", metric.label)
        if baseline is not None:
            level_line(right, *baseline)
        return svg(figure)


def score_bars(
    bars: Mapping[str, tuple[float, float | None, float | None]], highlighted: str, label: str
) -> str:
    """Return an SVG of a horizontal bar for each (score, low, high). highlighted: one name."""
    with rc_context(STYLE):
        figure = Figure(figsize=(7.5, 0.7 + 0.5 * len(bars)), layout="constrained")
        axes = figure.subplots()
        for name, (score, low, high) in bars.items():
            colour = ORANGE if name == highlighted else BLUE
            axes.barh(name, score, color=colour, height=0.6)
            if low is not None and high is not None:
                axes.plot([low, high], [name, name], color=INK, lw=1.4)
            end = max(score, high or score)
            axes.annotate(
                f"{score:.1f}",
                (end, name),
                (6, 0),
                textcoords="offset points",
                va="center",
                fontsize=10,
            )
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.margins(x=0.12)
        axes.set_xlim(left=0)
        axes.set_xlabel(label)
        return svg(figure)


def level_line(axes: Any, label: str, height: float) -> None:
    """Draw a dashed horizontal line with a legend."""
    axes.axhline(height, color=INK, ls="--", lw=1.2, label=label)
    axes.legend(loc="best", frameon=False, fontsize=9)


def _line(
    axes: Any,
    rows: Mapping[int, Mapping[str, float]],
    key: str,
    colour: str,
    marker: str,
    label: str,
) -> None:
    steps = [s for s in sorted(rows) if key in rows[s]]
    axes.plot(steps, [rows[s][key] for s in steps], color=colour, marker=marker or None, lw=1.8)
    axes.set_xlabel("step")
    axes.set_ylabel(label)


def similarity_scatter(
    gold: np.ndarray, panels: Sequence[tuple[str, np.ndarray, float]], *, normalized: bool = False
) -> str:
    """Return an SVG of predicted cosine against gold grade, a panel per (title, cosines, Spearman).

    normalized: whether each panel's cosines are scaled from its lowest, 0, to its highest, 1
    (CoT-BERT Figure 3); panels then compare in shape, not in level. Grades have a little horizontal
    jitter, since equal grades would hide each other.
    """
    columns = min(len(panels), COLUMNS)
    lines = -(-len(panels) // columns)
    spread = np.random.default_rng(0).uniform(-0.08, 0.08, len(gold))
    with rc_context(STYLE):
        figure = Figure(figsize=(_WIDTHS[columns] * columns, 3.8 * lines), layout="constrained")
        grid = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).flat
        for number, (title, cosine, score) in enumerate(panels):
            axes = grid[number]
            _scatter(axes, gold + spread, _unit_range(cosine) if normalized else cosine)
            axes.set_title(_folded(f"{title}: Spearman {score:.1f}"), fontsize=11)
            axes.tick_params(labelbottom=True)
            axes.set_xlabel("gold similarity, 0 to 5")
            if number % columns == 0:
                axes.set_ylabel("cosine, lowest 0 to highest 1" if normalized else _COSINE)
        for axes in list(grid)[len(panels) :]:
            axes.remove()
        return svg(figure)


def _scatter(axes: Any, x: np.ndarray, y: np.ndarray) -> None:
    few = len(x) <= VECTOR_POINTS
    size, alpha = (14, 0.55) if len(x) <= 500 else (7, 0.35)
    axes.scatter(x, y, s=size, color=BLUE, alpha=alpha, linewidths=0, rasterized=not few)


def _unit_range(values: np.ndarray) -> np.ndarray:
    low, high = values.min(), values.max()
    return np.asarray((values - low) / max(high - low, 1e-12))


def _folded(title: str) -> str:
    return "\n".join(textwrap.wrap(title, TITLE_WIDTH, break_on_hyphens=False))
