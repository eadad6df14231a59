"""What the trials of a sweep are to its report: their scores, and the settings that were drawn.

A trial is an entry of "trials" in the result.json of a sweep. Nothing here draws or writes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pipelines.tuning.state import FAILED, FINISHED, STOPPED, UNFINISHED
from pipelines.tuning.trial_plan import SEED

Trial = Mapping[str, Any]
STATUSES = (FINISHED, STOPPED, FAILED, UNFINISHED)
# A numeric setting that spans more than this factor is shown on a logarithmic axis.
LOG_FACTOR = 20.0


def number(value: Any) -> float | None:
    """A finite number, or None for what is missing, not a number or infinite."""
    return float(value) if is_number(value) and math.isfinite(value) else None


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def score(trial: Trial) -> float | None:
    """The best dev Spearman of a trial, times 100."""
    return number(trial.get("dev_spearman"))


def before(trial: Trial) -> float | None:
    """The dev Spearman before its first step."""
    return number(trial.get("dev_spearman_before"))


def sorted_trials(trials: Sequence[Trial]) -> list[Trial]:
    """The best score first; those without a score last, by name."""

    def place(trial: Trial) -> tuple[float, str]:
        found = score(trial)
        return (math.inf if found is None else -found, str(trial.get("name", "")))

    return sorted(trials, key=place)


def status_counts(trials: Sequence[Trial]) -> dict[str, int]:
    """How many trials ended in each way, in the order of STATUSES; no zeros."""
    counts = Counter(str(trial.get("status")) for trial in trials)
    known = {status: counts.pop(status) for status in STATUSES if counts[status]}
    return known | {status: count for status, count in counts.items() if count}


def drawn(trials: Sequence[Trial]) -> list[str]:
    """The settings that were drawn, as they come; the seed is a field of its own."""
    names = (name for trial in trials for name in trial.get("settings", {}))
    return [name for name in dict.fromkeys(names) if name != SEED]


def having(trials: Sequence[Trial], name: str) -> list[Trial]:
    """The trials for which this setting was drawn, in the order in which they were begun."""
    found = [trial for trial in trials if name in trial.get("settings", {})]
    return sorted(found, key=lambda trial: str(trial.get("name", "")))


def values(trials: Sequence[Trial], name: str) -> list[Any]:
    """The different values of a setting: numbers ascending, others as they were begun."""
    found = {text(t["settings"][name]): t["settings"][name] for t in having(trials, name)}
    if is_numeric(trials, name):
        return sorted(found.values())
    return list(found.values())


def is_numeric(trials: Sequence[Trial], name: str) -> bool:
    """Whether every value of a setting is a finite number."""
    return all(number(trial["settings"][name]) is not None for trial in having(trials, name))


def is_logarithmic(numbers: Sequence[float]) -> bool:
    """Whether numbers are better told apart by their ratios."""
    return min(numbers) > 0 and max(numbers) > LOG_FACTOR * min(numbers)


def varied(trials: Sequence[Trial]) -> list[str]:
    """The drawn settings with at least two values among these trials."""
    return [name for name in drawn(trials) if len(values(trials, name)) > 1]


def scores_by_value(trials: Sequence[Trial], name: str) -> dict[str, list[float]]:
    """Value of a setting as text -> the scores of its finished trials, seed after seed."""
    groups: dict[str, list[float]] = {text(value): [] for value in values(trials, name)}
    for trial in having(trials, name):
        found = score(trial)
        if trial.get("status") == FINISHED and found is not None:
            groups[text(trial["settings"][name])].append(found)
    return groups


def text(value: Any) -> str:
    """A value as a reader writes it: null, true, 2e-5, a,b."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e6:
        return str(int(value))
    if isinstance(value, float):
        shown = f"{value:.3e}" if 0 < abs(value) < 1e-3 else f"{value:.4g}"
        mantissa, exponential, exponent = shown.partition("e")
        if exponential and "." in mantissa:
            mantissa = mantissa.rstrip("0").rstrip(".")
        return f"{mantissa}e{int(exponent)}" if exponential else mantissa
    if isinstance(value, (list, tuple)):
        return ",".join(text(item) for item in value)
    return str(value)
