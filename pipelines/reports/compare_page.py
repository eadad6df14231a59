"""The report of `cotbert compare`: a table of scores, and a plot of every seed's score."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from cotbert_core.files import write_text
from pipelines.recording.dev_metric import SPEARMAN, DevMetric, metric_in
from pipelines.reports import html_page, training_page
from pipelines.reports.plots import BLUE, INK, STYLE, svg

Row = Mapping[str, Any]
HEADER = ("entry", "method", "dev before", "dev after", "least", "most", "test", "seconds")


def cells(row: Row) -> tuple[str, ...]:
    """Return one row of the table, for a terminal or a page."""
    test = _with_spread(row, "test") if "test_mean" in row else ""
    return (
        row["entry"],
        row["method"],
        f"{row['dev_before']:.2f}",
        _with_spread(row, "dev"),
        f"{row['dev_min']:.2f}",
        f"{row['dev_max']:.2f}",
        test,
        f"{row['seconds']:.0f}",
    )


def _with_spread(row: Row, key: str) -> str:
    if len(row["dev"]) == 1:  # a single number has no spread
        return f"{row[f'{key}_mean']:.2f}"
    return f"{row[f'{key}_mean']:.2f} ± {row[f'{key}_spread']:.2f}"


def write(path: Path, result: Mapping[str, Any]) -> None:
    """Write the page of a comparison."""
    rows, metric = result["rows"], metric_in([result.get("metric", "")])
    seeds = ", ".join(map(str, result["seeds"]))
    explained = (
        f"<p>{metric.label}, mean and sample standard deviation over the seeds. dev: "
        f"{html.escape(result['dev'])}; test: the average Spearman x 100 over "
        f"{', '.join(result['tasks']) or 'no task'}; seconds: the time of one run's training "
        "steps.</p>"
    )
    baseline = "\n".join(map(training_page.against_baseline, result["verdicts"]))
    budget = html_page.table(("", ""), list(result["budget"].items()), "text")
    sections = [
        ("Scores", html_page.table(HEADER, [cells(row) for row in rows]) + explained),
        ("Against the untouched encoder", baseline),
        ("Every seed", dots(rows, metric)),
        ("Budget, the same for all", budget),
    ]
    write_text(path, html_page.page("Methods compared", f"Seeds {seeds}.", sections))


def dots(rows: Sequence[Row], metric: DevMetric = SPEARMAN) -> str:
    """Return an SVG of each entry's dev scores: a point per seed, hollow before training."""
    with rc_context(STYLE):
        figure = Figure(figsize=(8, 0.9 + 0.42 * len(rows)), layout="constrained")
        axes = figure.subplots()
        for place, row in enumerate(rows):
            axes.scatter(
                [row["dev_before"]], [place], s=34, facecolors="none", edgecolors=INK, zorder=3
            )
            axes.scatter(
                row["dev"], [place] * len(row["dev"]), s=34, color=BLUE, alpha=0.75, zorder=3
            )
        axes.set_yticks(range(len(rows)), [row["entry"] for row in rows])
        axes.invert_yaxis()
        axes.set_xlabel(f"{metric.label}; one point per seed, hollow: before training")
        return svg(figure)
