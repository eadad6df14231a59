"""The tables of a sweep: all trials for a file, a terminal and a page, and values compared."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cotbert_core.files import write_text
from pipelines.runtime.progress import clock, table
from pipelines.training.multi_seed import spread
from pipelines.tuning.sampled_trials import (
    Trial,
    before,
    drawn,
    having,
    number,
    score,
    scores_by_value,
    sorted_trials,
    text,
    values,
)
from pipelines.tuning.trial_plan import SEED
from tune_spaces import VARIANT

# What trials.csv tells of a trial after its settings.
FACTS = (
    *(SEED, "status", "dev_spearman", "dev_spearman_before", "best_step", "steps", "seconds"),
    *("error", "mlflow_run_id"),
)
# Letters of a setting in a table; the file has them all.
LETTERS = 40
NONE = "-"


def write_trials_csv(path: Path, trials: Sequence[Trial]) -> None:
    """One row a trial, the best first; its settings as columns. An empty cell stands for nothing.

    A setting that is no text is written as JSON, so that null is told from what was not drawn.
    """
    names = drawn(trials)
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(("name", *names, *FACTS))
    for trial in sorted_trials(trials):
        settings = trial.get("settings", {})
        chosen = [_cell(settings[name]) if name in settings else "" for name in names]
        facts = [trial.get(fact) for fact in FACTS]
        writer.writerow([trial.get("name", ""), *chosen, *("" if f is None else f for f in facts)])
    write_text(path, buffer.getvalue())


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def trials_table(trials: Sequence[Trial]) -> str:
    """All trials for a terminal, the best first, and a line for each error."""
    lines = [table(trial_rows(trials), trial_header(trials))]
    lines += [f"{name} {status}: {error}" for name, status, error in errors(trials)]
    return "\n".join(lines)


def trial_header(trials: Sequence[Trial]) -> tuple[str, ...]:
    return (
        "trial",
        *drawn(trials),
        "seed",
        "status",
        "dev",
        "before",
        "best step",
        "steps",
        "time",
    )


def trial_rows(trials: Sequence[Trial]) -> list[tuple[str, ...]]:
    """The cells of all trials, the best first."""
    names = drawn(trials)

    def row(trial: Trial) -> tuple[str, ...]:
        settings = trial.get("settings", {})
        seconds = number(trial.get("seconds"))
        return (
            str(trial.get("name", "")),
            *(_short(text(settings[name])) if name in settings else NONE for name in names),
            *(_whole(trial.get(SEED)), str(trial.get("status"))),
            *(points(score(trial)), points(before(trial))),
            *(_whole(trial.get("best_step")), _whole(trial.get("steps"))),
            NONE if seconds is None else clock(seconds),
        )

    return [row(trial) for trial in sorted_trials(trials)]


def errors(trials: Sequence[Trial]) -> list[tuple[str, str, str]]:
    """(name, status, error in one line) of the trials that have one."""
    return [
        (str(t.get("name", "")), str(t.get("status")), " ".join(str(t["error"]).split()))
        for t in sorted_trials(trials)
        if t.get("error")
    ]


def comparable(trials: Sequence[Trial], published: Mapping[str, float]) -> list[str]:
    """The variant, and each setting with a value that the paper has a figure for."""
    return [
        name
        for name in drawn(trials)
        if name == VARIANT or any(_figure(v, published) is not None for v in values(trials, name))
    ]


def compared_rows(
    trials: Sequence[Trial], name: str, published: Mapping[str, float]
) -> list[tuple[str, str, str, str]]:
    """(value, score, how many finished, the paper's figure) for each value, as they were given."""
    scores = scores_by_value(trials, name)
    begun = [text(trial["settings"][name]) for trial in having(trials, name)]
    rows = []
    for value in values(trials, name):
        found, count = scores[text(value)], begun.count(text(value))
        ended = str(count) if len(found) == count else f"{len(found)} of {count}"
        rows.append((text(value), mean_text(found), ended, points(_figure(value, published))))
    return rows


def _figure(value: Any, published: Mapping[str, float]) -> float | None:
    return published.get(str(value), published.get(text(value)))


def mean_text(found: Sequence[float]) -> str:
    """Mean ± spread; one number has no spread."""
    if len(found) < 2:
        return points(found[0] if found else None)
    stats = spread(found)
    return f"{stats['mean']:.2f} ± {stats['spread']:.2f}"


def points(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f}"


def _short(value: str) -> str:
    return value if len(value) <= LETTERS else value[: LETTERS - 1] + "…"


def _whole(value: Any) -> str:
    return NONE if value is None else f"{value:,}"
