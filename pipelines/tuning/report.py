"""The report of `cotbert tune`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cotbert_core.files import write_text
from pipelines.recording.dev_metric import metric_in
from pipelines.recording.metric_names import BASELINE
from pipelines.reports import html_page
from pipelines.runtime.progress import clock
from pipelines.training.baseline_sentence import baseline_line, baseline_sentence
from pipelines.training.report import against_baseline
from pipelines.tuning.plots import setting_plots
from pipelines.tuning.sampled_trials import (
    TrialRow,
    before,
    metric_among,
    score,
    status_counts,
    text,
    varied,
)
from pipelines.tuning.state import FINISHED, STOPPED
from pipelines.tuning.tables import (
    NONE,
    comparable,
    compared_rows,
    errors,
    points,
    trial_header,
    trial_rows,
)
from pipelines.tuning.trial_plan import SEED

BEST = "the best trial"


def write_sweep_report(
    path: Path, result: Mapping[str, Any], *, published: Mapping[str, float] = {}, source: str = ""
) -> None:
    """Write the report, without empty sections.

    published: the paper's score for a variant, or for a setting's value as text. source: the paper.
    """
    trials: Sequence[TrialRow] = result["trials"]
    best = result["best"] and result["best"]["name"]
    sections = [
        ("Summary", _summary(result)),
        ("Score against each setting", setting_plots(trials, best, baseline_line(result))),
        *(
            (f"By {name}", _compared(trials, name, published, source))
            for name in comparable(trials, published)
        ),
        ("Trials", _trials(trials)),
    ]
    note = f"A sweep of cotbert over recipe {result['recipe']}."
    shown = [(heading, content) for heading, content in sections if content]
    write_text(path, html_page.page(f"Sweep {result['space']}", note, shown))


def _summary(result: Mapping[str, Any]) -> str:
    trials: Sequence[TrialRow] = result["trials"]
    counts = status_counts(trials)
    by_status = ", ".join(f"{count} {status}" for status, count in counts.items())
    rows = [
        ("space", result["space"]),
        ("recipe", result["recipe"]),
        ("trials", f"{len(trials)}: {by_status}" if trials else "none"),
        ("training time of all trials", clock(result["training_seconds"])),
        *_best_rows(result["best"]),
        *(("dev", result["dev"]), (BASELINE, baseline_line(result)[0])),
    ]
    if result["mlflow_parent_run_id"]:
        rows.append(("MLflow run", result["mlflow_parent_run_id"]))
    warning = "" if FINISHED in counts else "<p><strong>No trial finished.</strong></p>\n"
    if result["best"]:
        warning += against_baseline(baseline_sentence(result, BEST))
    return warning + html_page.table(("", ""), rows, "text")


def _best_rows(best: TrialRow | None) -> list[tuple[str, str]]:
    if not best or score(best) is None:
        return []
    details = [f"trial {best['name']}", f"seed {best[SEED]}", f"step {best['best_step']}"]
    if before(best) is not None:
        details.append(f"{points(before(best))} before training")
    settings = [(name, text(value)) for name, value in best["settings"].items()]
    return [
        (f"best {metric_in(best).label}", f"{points(score(best))} ({', '.join(details)})"),
        *settings,
    ]


def _compared(
    trials: Sequence[TrialRow], name: str, published: Mapping[str, float], source: str
) -> str:
    """Return the table of a setting's values with the paper's scores."""
    rows: list[tuple[str, ...]] = list(compared_rows(trials, name, published))
    # Otherwise the trials of a value also differ in other settings.
    alone = set(varied(trials)) <= {name}
    header: tuple[str, ...] = (
        name,
        metric_among(trials).label,
        "seeds" if alone else "trials",
        "paper",
    )
    note = "Mean ± sample standard deviation over the finished "
    note += "seeds." if alone else "trials, whose other settings differ too."
    if any(trial["status"] == STOPPED for trial in trials):
        note += " Stopped trials, the weaker ones, are left out, so these means are too high."
    if all(row[-1] == NONE for row in rows):
        header, rows = header[:-1], [row[:-1] for row in rows]
    elif source:
        note += f" Paper: {source}; for another dev set compare the order, not the level."
    made = html_page.table(header, rows, shown=html_page.ROWS_SHOWN)
    return made + html_page.paragraphs([note], "note")


def _trials(trials: Sequence[TrialRow]) -> str:
    """Return the tables of trials and of errors, truncated to their first rows."""
    if not trials:
        return ""
    shown = html_page.ROWS_SHOWN
    page = html_page.table(trial_header(trials), trial_rows(trials), shown=shown)
    rows, header = errors(trials), ("trial", "status", "error")
    return page + (html_page.table(header, rows, "text", shown=shown) if rows else "")
