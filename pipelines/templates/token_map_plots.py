"""Plots of a vocabulary: its tokens in two dimensions, by frequency and by kind."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from cotbert_core.readouts.mask_predictions import KINDS
from pipelines.reports.plots import STYLE, svg

# As in PromptBERT Figure 1 subwords are yellow and capitals red; the colours differ in greyscale.
COLOURS = {"word": "#2f6fb5", "subword": "#e3a008", "capital": "#b3262e", "other": "#52606d"}
NAMES = {
    "word": "begins a word",
    "subword": "subword",
    "capital": "begins a word, with capitals",
    "other": "punctuation, digits, special",
}
# From light to nearly black; the lightest differs from the colour of absent tokens.
SHADES = ("#a5d8d0", "#2b8cbe", "#0b3c8c", "#020617")
ABSENT = "#dde3e9"
# The colour scale ends at this quantile of the counts: by Zipf's law a few tokens would otherwise
# take up half of it.
DARKEST = 0.998
POINT = 1.6
# Most letters in a line of text that is as wide as the colour scale.
LETTERS = 44
# The background of the points' images, which stay light on a dark page.
PLATE, PLATE_GRID = "#fdfdfe", "#e4e7ec"


def token_map(
    points: np.ndarray,
    shares: np.ndarray,
    counts: np.ndarray,
    kinds: Sequence[str],
    corpus: str,
) -> str:
    """Return an SVG of two panels with the same axes (PromptBERT Figures 1 and 2).

    points: (V, 2). shares: (2,) explained variance. counts: (V,) occurrences in `corpus`. kinds:
    (V,) of KINDS. The points are an image inside the SVG, since 30,000 shapes would take megabytes.
    """
    with rc_context(STYLE):
        figure = Figure(figsize=(9.4, 5.4), layout="constrained")
        left, right = figure.subplots(1, 2, sharex=True, sharey=True)
        _by_frequency(figure, left, points, counts, corpus)
        _by_kind(right, points, np.asarray(kinds))
        for axes in (left, right):
            axes.set_facecolor(PLATE)
            axes.grid(color=PLATE_GRID)
            axes.set_xlabel(f"first component, {shares[0]:.1%} of the variance")
        left.set_ylabel(f"second component, {shares[1]:.1%} of the variance")
        return svg(figure)


def _by_frequency(
    figure: Figure, axes: Any, points: np.ndarray, counts: np.ndarray, corpus: str
) -> None:
    """Plot tokens by frequency: more frequent tokens are darker and on top."""
    seen = np.flatnonzero(counts)
    seen = seen[np.argsort(counts[seen], kind="stable")]
    absent = np.flatnonzero(counts == 0)
    _dots(axes, points[absent], color=ABSENT)
    highest = np.quantile(counts[seen], DARKEST) if len(seen) else 2
    dots = _dots(
        axes,
        points[seen],
        c=counts[seen],
        cmap=LinearSegmentedColormap.from_list("frequency", SHADES),
        norm=LogNorm(1, max(2, highest)),
    )
    bar = figure.colorbar(dots, ax=axes, location="bottom", shrink=0.8, aspect=35, extend="max")
    bar.formatter = StrMethodFormatter("{x:,.0f}")
    absent_dots = f"(grey: {len(absent):,} tokens that do not occur)"
    where = textwrap.wrap(f"occurrences in {corpus}", LETTERS, max_lines=2, placeholder=" …")
    bar.set_label("\n".join([*where, absent_dots]))
    axes.set_title("By frequency", fontsize=11)


def _by_kind(axes: Any, points: np.ndarray, kinds: np.ndarray) -> None:
    """Plot tokens by kind, in random order, so that no kind covers another."""
    order = np.random.default_rng(0).permutation(len(points))
    colours = np.array([COLOURS[kind] for kind in kinds])
    _dots(axes, points[order], c=colours[order])
    for kind in KINDS:
        if count := int((kinds == kind).sum()):
            axes.scatter([], [], s=24, color=COLOURS[kind], label=f"{NAMES[kind]} ({count:,})")
    axes.set_title("By kind", fontsize=11)
    # Below the panel, where it covers no point, beside the other panel's colour bar.
    legend = axes.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, -0.19),
        ncols=2,
        frameon=False,
        fontsize=9,
        columnspacing=1.2,
        handletextpad=0.2,
    )
    legend.set_in_layout(False)


def _dots(axes: Any, points: np.ndarray, **how: Any) -> Any:
    """Plot points without antialiasing and transparency, in a third of the bytes."""
    return axes.scatter(*points.T, s=POINT, linewidths=0, antialiased=False, rasterized=True, **how)
