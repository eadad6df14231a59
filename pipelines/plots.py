"""Plots of the reports as SVG text, to be put into a page as they are.

Matplotlib's objects are used directly: pyplot keeps global state and may look for a screen.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

from pipelines.tracking import DEV_SPEARMAN, LOSS

INK, BLUE, ORANGE, GRID = "#1f2933", "#2563a8", "#c2571a", "#e3e7eb"
_STYLE = {
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#9aa5b1",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": GRID,
    "xtick.color": INK,
    "ytick.color": INK,
    "svg.fonttype": "none",  # text stays text: small, sharp and searchable
    "svg.hashsalt": "cotbert",
}


def _svg(figure: Figure) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None}, bbox_inches="tight")
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def training_curves(rows: Mapping[int, Mapping[str, float]]) -> str:
    """Loss (left, logarithmic) and dev Spearman (right) by step."""
    with rc_context(_STYLE):
        figure = Figure(figsize=(10, 3.4), layout="constrained")
        left, right = figure.subplots(1, 2)
        _line(left, rows, LOSS, BLUE, "", "loss")
        if min((r[LOSS] for r in rows.values() if LOSS in r), default=0) > 0:
            left.set_yscale("log")
        _line(right, rows, DEV_SPEARMAN, ORANGE, "o", "dev Spearman x 100")
        return _svg(figure)


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


def similarity_scatter(gold: np.ndarray, panels: Sequence[tuple[str, np.ndarray, float]]) -> str:
    """Gold grade against predicted cosine, one panel for each (title, cosines, Spearman).

    Grades are spread a little sideways, so that equal ones do not hide each other.
    """
    spread = np.random.default_rng(0).uniform(-0.08, 0.08, len(gold))
    with rc_context(_STYLE):
        figure = Figure(figsize=(5 * len(panels), 3.8), layout="constrained")
        for axes, (title, cosine, score) in zip(
            np.atleast_1d(figure.subplots(1, len(panels), sharey=True)), panels, strict=True
        ):
            axes.scatter(gold + spread, cosine, s=14, color=BLUE, alpha=0.55, linewidths=0)
            axes.set_title(f"{title}: Spearman {score:.1f}", fontsize=11)
            axes.set_xlabel("gold similarity, 0 to 5")
        figure.axes[0].set_ylabel("predicted cosine")
        return _svg(figure)
