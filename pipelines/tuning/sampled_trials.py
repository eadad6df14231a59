"""The scores and sampled settings of a sweep's trials, for its report.

A trial is an entry of "trials" in the result.json of a sweep (pipelines.tuning.state.trial_row).
All have values of the same settings, and are in the order in which they began.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pipelines.recording.dev_metric import DevMetric, metric_in
from pipelines.reports.values import as_typed
from pipelines.tuning.state import FINISHED, STATUSES
from tune_spaces.axes import is_number

TrialRow = Mapping[str, Any]
# Significant digits of a sampled number.
DIGITS = 4


def number(value: Any) -> float | None:
    """Return a finite number, or None for a missing, infinite or non-numeric value."""
    return float(value) if is_number(value) and math.isfinite(value) else None


def score(trial: TrialRow) -> float | None:
    """Return the best dev score of a trial."""
    return number(trial[metric_in(trial).name])


def before(trial: TrialRow) -> float | None:
    """Return a trial's dev score before the first step."""
    return number(trial[metric_in(trial).before])


def metric_among(trials: Sequence[TrialRow]) -> DevMetric:
    """Return the metric of the dev scores of these trials."""
    return metric_in(name for trial in trials for name in trial)


def sorted_trials(trials: Sequence[TrialRow]) -> list[TrialRow]:
    """Return the trials, the best score first; trials without a score last, by name."""

    def place(trial: TrialRow) -> tuple[float, str]:
        found = score(trial)
        return (math.inf if found is None else -found, trial["name"])

    return sorted(trials, key=place)


def status_counts(trials: Sequence[TrialRow]) -> dict[str, int]:
    """Return the number of trials of each status, in the order of STATUSES, without zeros."""
    counts = Counter(trial["status"] for trial in trials)
    return {status: counts[status] for status in STATUSES if counts[status]}


def sampled_settings(trials: Sequence[TrialRow]) -> list[str]:
    """Return the names of the sampled settings, without the seed, which is a separate field."""
    return list(trials[0]["settings"]) if trials else []


def values(trials: Sequence[TrialRow], name: str) -> list[Any]:
    """Return the different values of a setting: numbers ascending, others as the trials began."""
    found = {text(trial["settings"][name]): trial["settings"][name] for trial in trials}
    if is_numeric(trials, name):
        return sorted(found.values())
    return list(found.values())


def is_numeric(trials: Sequence[TrialRow], name: str) -> bool:
    """Return whether every value of a setting is a finite number."""
    return all(number(trial["settings"][name]) is not None for trial in trials)


def varied(trials: Sequence[TrialRow]) -> list[str]:
    """Return the names of sampled settings with at least two values among these trials."""
    return [name for name in sampled_settings(trials) if len(values(trials, name)) > 1]


def scores_by_value(trials: Sequence[TrialRow], name: str) -> dict[str, list[float]]:
    """Return the scores of finished trials for each value of a setting (as text), seed by seed."""
    groups: dict[str, list[float]] = {text(value): [] for value in values(trials, name)}
    for trial in trials:
        found = score(trial)
        if trial["status"] == FINISHED and found is not None:
            groups[text(trial["settings"][name])].append(found)
    return groups


def text(value: Any) -> str:
    """Return a sampled value as a user would type it, with DIGITS significant digits."""
    return as_typed(value, DIGITS)
