"""Plot gold grades against predicted cosines, a panel for each model (CoT-BERT, Figure 3)."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

from pipelines.reports import html_page
from pipelines.reports.colours import BLUE
from pipelines.reports.plots import STYLE, plot, svg
from pipelines.reports.values import UNDEFINED

# Most panels in a row of a figure, the width and height of a panel in inches, and most letters in a
# line of a title.
COLUMNS, WIDTH, HEIGHT, TITLE_WIDTH = 3, 3.7, 3.7, 34
# More points are drawn as an image inside the SVG, since each shape takes 100 bytes.
VECTOR_POINTS = 5000
Panel = tuple[str, np.ndarray, float]
SAME_AXIS = (
    "All models have the same axis: cosines that are all high lie at the top, as those of an "
    "anisotropic encoder do."
)
NORMALIZED = (
    "Here the cosines of each model are stretched from its lowest, 0, to its highest, 1, as in "
    "CoT-BERT, Figure 3. The shapes can be compared, the levels cannot."
)


def similarity_panels(
    gold: np.ndarray, panels: Sequence[Panel], *, normalized: bool = False
) -> str:
    """Return a plot per (title, cosines, Spearman), and a sentence on their axes.

    normalized: whether each panel's cosines are scaled from its lowest, 0, to its highest, 1.
    """
    limits = _limits(panels, normalized)

    def one(panel: Panel) -> str:
        return plot(lambda axes: _draw(axes, gold, panel, limits, normalized), WIDTH, HEIGHT)

    note = html_page.paragraphs([NORMALIZED if normalized else SAME_AXIS], "note")
    return html_page.plots(map(one, panels)) + note


def similarity_figure(gold: np.ndarray, panels: Sequence[Panel]) -> str:
    """Return one SVG of all panels with normalized cosines, for a paper."""
    columns = min(len(panels), COLUMNS)
    lines = -(-len(panels) // columns)
    with rc_context(STYLE):
        figure = Figure(figsize=(WIDTH * columns, HEIGHT * lines), layout="constrained")
        grid = list(figure.subplots(lines, columns, squeeze=False).flat)
        for axes, panel in zip(grid, panels, strict=False):
            _draw(axes, gold, panel, _limits(panels, True), True)
        for axes in grid[len(panels) :]:
            axes.remove()
        return svg(figure)


def _limits(panels: Sequence[Panel], normalized: bool) -> tuple[float, float]:
    """Return the ends of the axis of cosines; 0 and 1 are always on it."""
    lowest = 0.0 if normalized else min(0.0, *(float(cosine.min()) for _, cosine, _ in panels))
    return lowest - 0.03, 1.03


def _draw(
    axes: Any, gold: np.ndarray, panel: Panel, limits: tuple[float, float], normalized: bool
) -> None:
    """Draw a panel. Grades have a little horizontal jitter, since equal ones hide each other."""
    title, cosine, score = panel
    if normalized:
        lowest = cosine.min()
        cosine = (cosine - lowest) / max(cosine.max() - lowest, 1e-12)
    jitter = np.random.default_rng(0).uniform(-0.08, 0.08, len(gold))
    size, alpha = (14, 0.55) if len(gold) <= 500 else (7, 0.35)
    axes.scatter(
        gold + jitter,
        cosine,
        s=size,
        color=BLUE,
        alpha=alpha,
        linewidths=0,
        rasterized=len(gold) > VECTOR_POINTS,
    )
    shown = UNDEFINED if math.isnan(score) else f"{score:.1f}"
    axes.set_title(_folded(f"{title}: Spearman {shown}"), fontsize=11)
    axes.set_ylim(limits)
    axes.set_xlabel("gold similarity, 0 to 5")
    axes.set_ylabel("cosine, lowest 0 to highest 1" if normalized else "predicted cosine")


def _folded(title: str) -> str:
    return "\n".join(textwrap.wrap(title, TITLE_WIDTH, break_on_hyphens=False))
