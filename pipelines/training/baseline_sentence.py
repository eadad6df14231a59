"""What is said of a training beside its baseline, the untouched encoder."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from cotbert_core.method_settings import METHOD_SETTINGS
from pipelines.recording.dev_metric import MLM_ACCURACY, metric_in
from pipelines.recording.metric_names import BASELINE

# Advice for a training that ends below its baseline. The second part is shown if the training's
# pooling costs this many points before the first step, or an unknown number.
READING_COSTS = 1.0
LONGER = "Train longer or with a lower optimizer.learning_rate"
ADVICE = (
    f"{LONGER}, or use the pooling of the untouched "
    "encoder (recipe simcse-base with method.readout=mean or cls); reading the vector at [MASK] "
    "pays off when the training starts from a plain language model such as bert-base-uncased."
)
# The same for a method that reads no [MASK].
OTHER_POOLING = LONGER + ", or with the pooling of the untouched encoder (--set method.readout={})."
# Said of a gain: if training changes nothing, the best of five checks is better than the untouched
# encoder in 78 % of simulated runs.
CHOSEN = "Dev scores chose the step, so some of the gain may be chance."


def baseline_line(result: Mapping[str, Any]) -> tuple[str, float]:
    """Return the label and score of a result's baseline for plots."""
    metric = metric_in(result)
    untouched = float(result[metric.baseline])
    return f"untouched: {result[BASELINE]} {untouched:.2f}{metric.percent}", untouched


def baseline_sentence(result: Mapping[str, Any], who: str = "the trained encoder") -> str:
    """Return a sentence with a result's difference to its baseline, with a warning that a gain may
    be chance, and advice if it is worse.

    result: the dev score, optionally the one before training, the dev set's name and the baseline.
    """
    metric = metric_in(result)
    score, untouched = float(result[metric.name]), float(result[metric.baseline])
    gap, percent = score - untouched, metric.percent
    if abs(gap) < 0.005:
        how = "the same as"
    elif math.isnan(gap):
        how = "not to be compared with"
    else:
        points = " points" if percent else ""
        how = f"{abs(gap):.2f}{points} {'better' if gap > 0 else 'worse'} than"
    sentence = (
        f"{who} {_scores(score, percent)} on dev ({result['dev']}): {how} the untouched "
        f"encoder, which {_scores(untouched, percent)} by {result[BASELINE]}."
    )
    before = result.get(metric.before)
    read_well = before is not None and untouched - float(before) < READING_COSTS
    advice = f"{LONGER}." if metric is MLM_ACCURACY or read_well else _pooling_advice(result)
    if gap <= -0.005:
        return f"warning: {sentence} {advice}"
    chance = f" {CHOSEN}" if gap >= 0.005 and metric is not MLM_ACCURACY else ""
    return sentence[0].upper() + sentence[1:] + chance


def _scores(score: float, percent: str) -> str:
    """Return the verb and the score of a sentence; the correlation of equal cosines has none."""
    return "has an undefined score" if math.isnan(score) else f"scores {score:.2f}{percent}"


def _pooling_advice(result: Mapping[str, Any]) -> str:
    """Return the advice for a training whose pooling is worse than that of the encoder."""
    method = METHOD_SETTINGS.get(result.get("method", ""))
    readout = method.model_fields.get("readout") if method else None
    if readout is None or readout.default == "mask":
        return ADVICE
    return OTHER_POOLING.format(plain_pooling(result[BASELINE]))


def plain_pooling(reading: str) -> str:
    """Return mean or cls, the pooling that is nearest to how a baseline is read."""
    return "cls" if "[CLS]" in reading else "mean"
