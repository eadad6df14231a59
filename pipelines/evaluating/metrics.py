"""The MLflow metrics of `cotbert evaluate`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pipelines.recording.metric_names import DIFFERENCE, P_VALUE, SUBSETS, metric_name, task_metric


def flat_metrics(result: Mapping[str, Any]) -> dict[str, float]:
    """Return one model's metrics: STS12.spearman, STS12.low, STS12.subsets.MSRpar, average, ..."""
    flat: dict[str, float] = {}
    for name, value in result.items():
        if not isinstance(value, Mapping):
            flat |= _number(metric_name(name), value)
            continue
        for key, number in value.items():
            flat |= _number(task_metric(name, key), number)
        for subset, number in value.get(SUBSETS, {}).items():
            flat |= _number(task_metric(name, f"{SUBSETS}.{subset}"), number)
    return flat


def difference_metrics(differences: Mapping[str, Any]) -> dict[str, float]:
    """Return the metrics of several models: average.difference/MODEL, average.p/MODEL, and the same
    for each task."""
    flat: dict[str, float] = {}
    for model, entries in differences.items():
        for task, entry in entries.items():
            for key in (DIFFERENCE, P_VALUE):
                flat |= _number(task_metric(task, key, model), entry[key])
    return flat


def _number(name: str, value: Any) -> dict[str, float]:
    is_number = isinstance(value, (int, float)) and np.isfinite(value)
    return {name: float(value)} if is_number else {}
