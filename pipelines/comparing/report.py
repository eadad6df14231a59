"""The report of `cotbert compare`: a table of scores, and a plot of every seed's score."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cotbert_core.files import write_text
from pipelines.recording.dev_metric import SPEARMAN, DevMetric, metric_in
from pipelines.reports import html_page
from pipelines.reports.colours import BLUE, INK
from pipelines.reports.plots import legend, number_axis, points, rows_plot
from pipelines.reports.values import UNDEFINED, as_typed, p_value, score_text
from pipelines.training.report import against_baseline

Row = Mapping[str, Any]
NOT_TRAINED = "not trained"
HEADER = (
    *("entry", "method", "dev before", "dev after", "least", "most", "test"),
    *("against the first", "seconds"),
)
_BEFORE: dict[str, Any] = {"marker": "o", "ms": 6, "mfc": "none", "mec": INK, "zorder": 3}
_SEED: dict[str, Any] = {"marker": "o", "ms": 6, "mfc": BLUE, "mec": "none", "alpha": 0.75}


def cells(row: Row) -> tuple[str, ...]:
    """Return one row of the table, for a terminal or a page."""
    test = _with_spread(row, "test") if "test_mean" in row else ""
    return (
        row["entry"],
        row["method"],
        score_text(row["dev_before"]),
        _with_spread(row, "dev"),
        score_text(row["dev_min"]),
        score_text(row["dev_max"]),
        test,
        _difference(row),
        f"{row['seconds']:.0f}",
    )


def _with_spread(row: Row, key: str) -> str:
    mean = row[f"{key}_mean"]
    if len(row["dev"]) == 1 or math.isnan(mean):  # a single number has no spread
        return score_text(mean)
    return f"{row[f'{key}_mean']:.2f} ± {row[f'{key}_spread']:.2f}"


def _difference(row: Row) -> str:
    if "difference" not in row:
        return ""
    if math.isnan(row["difference"]):
        return UNDEFINED
    return f"{row['difference']:+.2f}" + (f" (p {p_value(row['p'])})" if "p" in row else "")


def write_compare_report(path: Path, result: Mapping[str, Any]) -> None:
    """Write the page of a comparison."""
    rows, metric = result["rows"], metric_in([result.get("metric", "")])
    seeds = ", ".join(map(str, result["seeds"]))
    baseline = "\n".join(map(against_baseline, result["verdicts"]))
    budget = html_page.table(("", ""), list(result["budget"].items()), "text")
    scores = html_page.table(HEADER, [cells(row) for row in rows])
    sections = [
        ("Scores", scores + html_page.paragraphs([_explained(result, metric)], "note")),
        ("Against the untouched encoder", baseline),
        ("Every seed", dots(rows, metric)),
        ("Variants", _variants(result.get("variants", {}))),
        ("Budget, the same for all", budget),
    ]
    shown = [(heading, content) for heading, content in sections if content]
    write_text(path, html_page.page("Methods compared", f"Seeds {seeds}.", shown))


def _variants(variants: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the table of the entries that are not a recipe as it is; nothing without any."""
    rows = [
        (name, one["recipe"], ", ".join(f"{k}={as_typed(v)}" for k, v in one["changes"].items()))
        for name, one in variants.items()
    ]
    return html_page.table(("entry", "recipe", "changes"), rows, "text") if rows else ""


def _explained(result: Mapping[str, Any], metric: DevMetric) -> str:
    """Return a sentence that explains the columns of the table of scores."""
    tasks = ", ".join(result["tasks"])
    several = ", mean and sample standard deviation over the seeds" * (len(result["seeds"]) > 1)
    test = f"test: the average Spearman x 100 over {tasks}; " if tasks else ""
    return (
        f"{metric.label}{several}. dev: {result['dev']}; {test}{_against(result)}seconds: the time "
        "of one run's training steps, or of fitting a readout. The methods' losses are on "
        "different scales and are not compared."
    )


def _against(result: Mapping[str, Any]) -> str:
    """Return what the differences from the first recipe are; nothing where there are none."""
    if not any("difference" in row for row in result["rows"]):
        return ""
    of = "the tasks" if result["tasks"] else "dev"
    tested = ", and p of a paired t-test over the seeds, adjusted for the number of recipes"
    return (
        f"against the first: mean difference from the first recipe on {of}"
        f"{tested * (len(result['seeds']) > 1)}; "
    )


def dots(rows: Sequence[Row], metric: DevMetric = SPEARMAN) -> str:
    """Return a plot of each entry's dev scores: a point per seed, hollow without training."""

    def draw(axes: Any) -> None:
        for place, row in enumerate(rows):
            if row["dev_before"] is not None:
                before = f"{row['entry']}: {score_text(row['dev_before'])} without training"
                points(axes, [row["dev_before"]], [place], [before], **_BEFORE)
            if row["method"] != NOT_TRAINED:
                texts = [f"{row['entry']}: {score_text(score)}" for score in row["dev"]]
                points(axes, row["dev"], [place] * len(texts), texts, **_SEED)
        number_axis(axes.xaxis, [0.5])

    keys = [("a training run, one for each seed", _SEED), ("without training", _BEFORE)]
    drawn = rows_plot(draw, [row["entry"] for row in rows], metric.label)
    return legend([(label, how | {"ls": ""}) for label, how in keys]) + html_page.plots([drawn])
