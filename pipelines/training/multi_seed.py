"""The spread of scores over several seeds (PromptBERT, Table 10)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from pipelines.recording.dev_metric import metric_in


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return mean, spread (sample standard deviation, 0 for one value), min and max; all NaN if a
    value is, as the score of equal cosines is."""
    if any(map(math.isnan, values)):
        return dict.fromkeys(("mean", "spread", "min", "max"), math.nan)
    return {
        "mean": statistics.fmean(values),
        "spread": statistics.stdev(values) if len(values) > 1 else 0.0,
        "min": min(values),
        "max": max(values),
    }


def scores_of(results: Sequence[dict[str, Any]]) -> list[float]:
    """Return the dev score of each run."""
    return [float(result[metric_in(result).name]) for result in results]
