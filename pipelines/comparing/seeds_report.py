"""The report of `cotbert train --seeds`: the mean over the seeds, and every seed's score."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from cotbert_core.errors import counted
from cotbert_core.files import write_text
from pipelines.comparing.report import NOT_TRAINED, dots
from pipelines.recording.dev_metric import metric_in
from pipelines.recording.metric_names import BASELINE
from pipelines.reports import html_page
from pipelines.reports.values import rounded, score_text
from pipelines.training.baseline_sentence import baseline_line, baseline_sentence
from pipelines.training.report import against_baseline

HEADER = ("seed", "dev before", "dev after", "best step", "steps", "loss", "folder")


def mean_sentence(result: Mapping[str, Any]) -> str:
    """Return a sentence with the difference of the seeds' mean to the baseline."""
    metric, seeds = metric_in(result), len(result["seeds"])
    mean = {metric.name: result[f"{metric.name}_mean"], metric.before: _before(result)}
    return baseline_sentence({**result, **mean}, f"the mean of {counted(seeds, 'seed')}")


def _before(result: Mapping[str, Any]) -> float | None:
    """Return the mean dev score before training, in which a new head differs from seed to seed."""
    scores = [run[metric_in(result).before] for run in result["runs"]]
    return None if None in scores else fmean(scores)


def write_seeds_report(path: Path, result: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Write the page. settings: those that all seeds share, flat."""
    metric, runs = metric_in(result), result["runs"]
    spread = {key: result[f"{metric.name}_{key}"] for key in ("mean", "spread", "min", "max")}
    facts = [
        *((f"{metric.label}, {key}", score_text(value)) for key, value in spread.items()),
        *(("dev", result["dev"]), (BASELINE, baseline_line(result)[0])),
    ]
    facts += [("MLflow run", run_id)] if (run_id := result["mlflow_run_id"]) else []
    rows = [
        (
            str(run["seed"]),
            score_text(run[metric.before]),
            score_text(run[metric.name]),
            *(f"{run[key]:,}" for key in ("best_step", "steps")),
            rounded(run["loss"]),
            f"seed-{run['seed']}",
        )
        for run in runs
    ]
    sections = [
        (
            "Result",
            against_baseline(mean_sentence(result)) + html_page.table(("", ""), facts, "text"),
        ),
        ("Every seed", _points(result) + html_page.table(HEADER, rows) + _NOTE),
        ("Settings", html_page.table(("setting", "value"), list(settings.items()), "text")),
    ]
    title = f"{result['method']} on {result['encoder']}"
    note = f"Trained with the seeds {', '.join(map(str, result['seeds']))}."
    write_text(path, html_page.page(title, note, sections))


_NOTE = html_page.paragraphs(
    [
        "spread: the sample standard deviation over the seeds. The folder beside a seed's score "
        "holds its model and its report."
    ],
    "note",
)


def _points(result: Mapping[str, Any]) -> str:
    """Return a plot with a point for each seed, and one for the untouched encoder."""
    metric = metric_in(result)
    scores = [run[metric.name] for run in result["runs"]]
    method, untouched = result["method"], result[metric.baseline]
    rows = [
        {"entry": method, "method": method, "dev_before": _before(result), "dev": scores},
        {"entry": f"untouched: {result[BASELINE]}", "method": NOT_TRAINED, "dev_before": untouched},
    ]
    return dots(rows, metric)
