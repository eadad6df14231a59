"""Plots of the reports, as SVG text for an HTML page.

Matplotlib's objects are used directly, since pyplot has global state and may look for a screen.
Each plot has one pair of axes and is narrow: a page shows several side by side, a telephone below
each other.
"""

from __future__ import annotations

import html
import io
import re
import textwrap
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from pipelines.reports import html_page
from pipelines.reports.colours import BLUE, GREY, GRID, INK, PAGE, by_name
from pipelines.reports.values import as_typed

WIDTH, HEIGHT = 4.6, 3.2  # inches
DPI = 160
# More points of a line have no hover text each: a shape takes 300 bytes.
HOVERED = 200
# Numbers that span more than this factor have a logarithmic axis.
LOG_FACTOR = 20.0
# Most letters in a line of text that is as wide as a plot.
LINE_LETTERS = 56
# Points above and below the middle of a row, and the height of a line of its label.
ABOVE_ROW, BELOW_ROW, LINE_POINTS = 9, 11, 12
# The height of a bar in points, which leaves the label above it free.
BAR_POINTS = 16
_HOVER = "hover:"
STYLE = {
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "text.parse_math": False,  # a dollar sign in a template's text begins no formula
    "figure.facecolor": PAGE,
    "axes.facecolor": "none",
    "axes.labelcolor": INK,
    "axes.edgecolor": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "xtick.color": INK,
    "ytick.color": INK,
    "svg.fonttype": "none",  # text stays text: small, sharp and searchable
    "svg.hashsalt": "cotbert",
}


def svg(figure: Figure) -> str:
    """Return a figure as SVG text, always the same for the same figure."""
    buffer = io.StringIO()
    with warnings.catch_warnings():  # the reader's browser has the letters that this font lacks
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(buffer, format="svg", dpi=DPI, metadata={"Date": None})
    text = buffer.getvalue()
    shapes = re.sub(f'<g id="{_HOVER}([^"]*)">', r"<g><title>\1</title>", text)
    return by_name(shapes[shapes.index("<svg") :])


def plot(draw: Callable[[Any], None], width: float = WIDTH, height: float = HEIGHT) -> str:
    """Return an SVG of the axes on which `draw` draws. width, height: in inches."""
    with rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        draw(figure.subplots())
        # In pixels; larger letters than the page's would look odd on a wide screen.
        return svg(figure).replace("<svg", f'<svg style="max-width: {width * 125:.0f}px"', 1)


def hover(artist: Any, text: str) -> None:
    """Show a text when the pointer is on a part of a plot."""
    artist.set_gid(f"{_HOVER}{text}")


def points(
    axes: Any, xs: Sequence[float], ys: Sequence[float], texts: Sequence[str], **how: Any
) -> None:
    """Draw points that show their texts on hover. how: keywords of Matplotlib's Line2D."""
    for x, y, text in zip(xs, ys, texts, strict=True):
        (point,) = axes.plot([x], [y], ls="", **how)
        hover(point, text)


def legend(keys: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """Return an HTML list that wraps on a narrow screen, of (label, keywords of Line2D)."""
    items = "".join(f"<li>{_key(how)}{html.escape(label)}</li>\n" for label, how in keys)
    return f'<ul class="legend">\n{items}</ul>\n'


def _key(how: Mapping[str, Any]) -> str:
    with rc_context(STYLE):
        figure = Figure(figsize=(0.34, 0.24), facecolor="none")
        places = [0.5] if how.get("ls") == "" else [0.05, 0.95]
        figure.add_artist(Line2D(places, [0.5] * len(places), **how))
        return svg(figure)


def number_axis(axis: Any, numbers: Sequence[float], most: int = 6) -> None:
    """Set the ticks of an axis with these numbers: plain labels, whole ticks for whole numbers.

    The axis is logarithmic if the numbers span much. most: number of ticks, about.
    """
    low, high = min(numbers), max(numbers)
    if low > 0 and high > LOG_FACTOR * low:
        axis.axes.set(**{f"{axis.axis_name}scale": "log"})
        axis.set_major_locator(_log_locator(low, high))
    else:
        whole = all(float(number).is_integer() for number in numbers)
        axis.set_major_locator(MaxNLocator(most, integer=whole, min_n_ticks=1))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _label(value, axis)))
    axis.set_minor_formatter(NullFormatter())


def _label(value: float, axis: Any) -> str:
    """Return the label of a tick, with at least four digits, and more where two would be equal."""
    ticks = {float(tick) for tick in axis.get_majorticklocs()}
    for digits in range(4, 13):
        if len({as_typed(tick, digits) for tick in ticks}) == len(ticks):
            break
    return as_typed(float(value), digits)


def _log_locator(low: float, high: float) -> LogLocator:
    """Return the ticks of a logarithmic axis, as many as there is space for labels."""
    ratio = high / low
    return LogLocator(subs=(1, 2, 5) if ratio < 50 else (1, 3) if ratio < 1000 else (1,))


def count_axis(axis: Any) -> None:
    """Set the ticks of an axis of counts: whole numbers, with commas."""
    axis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def rows_plot(
    draw: Callable[[Any], None], labels: Sequence[str], xlabel: str, title: str = ""
) -> str:
    """Return an SVG with a row at y = 0, 1, ... for each label.

    The labels are above the rows, so that long ones leave the plot its width on a telephone.
    """
    texts = [_lines(label) for label in labels]
    row = _row_points(labels) / 72  # inches
    above = row - BELOW_ROW / 72

    def draw_all(axes: Any) -> None:
        draw(axes)
        axes.set_ylim(len(labels) - 1 + BELOW_ROW / 72 / row, -above / row)
        axes.set_yticks([])
        axes.grid(visible=False, axis="y")
        axes.spines["left"].set_visible(False)
        for place, lines in enumerate(texts):
            _row_label(axes, place, "\n".join(lines))
        axes.set_xlabel(xlabel)
        axes.set_title(title, fontsize=11, loc="left")

    return plot(draw_all, height=row * len(labels) + 0.55 + 0.3 * bool(title))


def _lines(label: str) -> list[str]:
    return textwrap.wrap(label, LINE_LETTERS, max_lines=2, placeholder=" …")


def _row_points(labels: Iterable[str]) -> float:
    """Return the height of each row with these labels in points."""
    return ABOVE_ROW + LINE_POINTS * max(len(_lines(label)) for label in labels) + BELOW_ROW


def _row_label(axes: Any, place: int, label: str) -> None:
    axes.annotate(
        label,
        (0, place),
        (0, ABOVE_ROW),
        xycoords=axes.get_yaxis_transform(),
        textcoords="offset points",
        va="bottom",
        fontsize=9.5,
        annotation_clip=False,
        # Without it the lines of the plot, such as that of a baseline, go through the letters.
        bbox={"facecolor": PAGE, "edgecolor": "none", "pad": 0},
    ).set_in_layout(False)


def score_bars(
    bars: Mapping[str, tuple[float, float | None, float | None]],
    colours: Mapping[str, str],
    label: str,
) -> str:
    """Return a plot with a horizontal bar for each (score, low, high). colours: other than blue."""

    height = BAR_POINTS / _row_points(bars)  # of a row's

    def draw(axes: Any) -> None:
        for place, (name, (score, low, high)) in enumerate(bars.items()):
            (bar,) = axes.barh(place, score, color=colours.get(name, BLUE), height=height)
            ends = ""
            if low is not None and high is not None:
                for colour, width in ((PAGE, 3.6), (INK, 1.4)):  # ink alone is lost on a bar
                    axes.plot([low, high], [place, place], color=colour, lw=width)
                ends = f", 95 % interval {low:.1f} to {high:.1f}"
            hover(bar, f"{name}: {score:.1f}{ends}")
            axes.annotate(
                f"{score:.1f}",
                (max(score, high or score), place),
                (6, 0),
                textcoords="offset points",
                va="center",
            )
        axes.margins(x=0.12)
        axes.set_xlim(left=0)

    return html_page.plots([rows_plot(draw, list(bars), label)])


def histogram(
    series: Mapping[str, tuple[str, Sequence[tuple[float, int]]]],
    width: float,
    xlabel: str,
    ylabel: str,
    names: Mapping[float, str] = {},
) -> str:
    """Return a plot of bars. series: colour and (x, count) by label. width: of a bar. names: what
    the text on hover calls an x, by default the number."""

    def draw(axes: Any) -> None:
        for label, (colour, bars) in series.items():
            xs, counts = zip(*bars, strict=True)
            drawn = axes.bar(xs, counts, width=width, color=colour, label=label)
            for bar, x, count in zip(drawn, xs, counts, strict=True):
                hover(bar, f"{label}, {names.get(x, round(x))}: {count:,}")
        count_axis(axes.xaxis)
        count_axis(axes.yaxis)
        axes.set_xlabel(xlabel)
        axes.set_ylabel(ylabel)
        axes.legend(frameon=False)

    return html_page.plots([plot(draw)])
