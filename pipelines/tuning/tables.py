"""The tables of a sweep: its trials, and the published scores of a setting's values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipelines.runtime.progress import clock, table
from pipelines.training.metrics_log import spread
from pipelines.tuning.sampled_trials import (
    TrialRow,
    before,
    sampled_settings,
    score,
    scores_by_value,
    sorted_trials,
    text,
    values,
)
from pipelines.tuning.trial_plan import SEED
from tune_spaces import VARIANT

# Maximum number of characters of a setting in a table; result.json has all of them.
LETTERS = 40
NONE = "-"


def trials_table(trials: Sequence[TrialRow]) -> str:
    """Return the table of all trials for a terminal, the best first, and a line for each error."""
    return "\n".join([table(trial_rows(trials), trial_header(trials)), *error_lines(trials)])


def error_lines(trials: Sequence[TrialRow]) -> list[str]:
    """Return a line for each trial with an error."""
    return [f"{name} {status}: {error}" for name, status, error in errors(trials)]


def trial_header(trials: Sequence[TrialRow]) -> tuple[str, ...]:
    """Return the titles of the columns; the scores come first, for narrow screens."""
    return (
        *("trial", "dev", "before", "status"),
        *sampled_settings(trials),
        *("seed", "best step", "steps", "time"),
    )


def trial_rows(trials: Sequence[TrialRow]) -> list[tuple[str, ...]]:
    """Return the cells of all trials, the best first."""
    names = sampled_settings(trials)

    def row(trial: TrialRow) -> tuple[str, ...]:
        return (
            *(trial["name"], points(score(trial)), points(before(trial)), trial["status"]),
            *(_short(text(trial["settings"][name])) for name in names),
            *map(_whole, (trial[SEED], trial["best_step"], trial["steps"])),
            clock(trial["training_seconds"]),
        )

    return [row(trial) for trial in sorted_trials(trials)]


def errors(trials: Sequence[TrialRow]) -> list[tuple[str, str, str]]:
    """Return (name, status, error in one line) of the trials with an error."""
    return [
        (trial["name"], trial["status"], " ".join(trial["error"].split()))
        for trial in sorted_trials(trials)
        if trial["error"]
    ]


def comparable(trials: Sequence[TrialRow], published: Mapping[str, float]) -> list[str]:
    """Return the names, "variant" included, that have a value with a published score."""
    return [
        name
        for name in sampled_settings(trials)
        if name == VARIANT or any(_figure(v, published) is not None for v in values(trials, name))
    ]


def compared_rows(
    trials: Sequence[TrialRow], name: str, published: Mapping[str, float]
) -> list[tuple[str, str, str, str]]:
    """Return (value, mean score, number of finished trials, published score) for each value."""
    scores = scores_by_value(trials, name)
    begun = [text(trial["settings"][name]) for trial in trials]
    rows = []
    for value in values(trials, name):
        found, count = scores[text(value)], begun.count(text(value))
        ended = str(count) if len(found) == count else f"{len(found)} of {count}"
        rows.append((text(value), mean_text(found), ended, points(_figure(value, published))))
    return rows


def _figure(value: Any, published: Mapping[str, float]) -> float | None:
    return published.get(str(value), published.get(text(value)))


def mean_text(found: Sequence[float]) -> str:
    """Return mean ± sample standard deviation, or a single number alone."""
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
