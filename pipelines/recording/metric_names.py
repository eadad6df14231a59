"""The names of the metrics in MLflow, metrics.jsonl and result.json."""

from __future__ import annotations

import re

LOSS = "loss"
DEV_SPEARMAN = "dev_spearman"
# The dev score that a trial reports to Ray Tune, of either metric.
DEV_SCORE = "dev_score"
# The dev scores on held-out documents; the first one is the DevMetric.
DEV_FOUND_FIRST, DEV_MRR10 = "dev_found_first", "dev_mrr10"
# The dev scores of the untouched encoder, and its readout (pipelines.training.baseline).
BASELINE, BASELINE_SPEARMAN = "baseline", "baseline_spearman"
# The share in % of masked tokens of held-out packed rows predicted after and before training.
DEV_MLM_ACCURACY, BASELINE_MLM_ACCURACY = "dev_mlm_accuracy", "baseline_mlm_accuracy"
BASELINE_FOUND_FIRST, BASELINE_MRR10 = "baseline_found_first", "baseline_mrr10"
# Per training step, over all workers: tokens without padding per second, the share of padding,
# model FLOPs per second, and model FLOPs utilization (MFU), their share of the measured peak FLOPs
# (cotbert_core.training.flops).
TOKENS_PER_SECOND = "tokens_per_second"
PADDING_SHARE = "padding_share"
MODEL_FLOPS_PER_SECOND = "model_flops_per_second"
MFU = "mfu"
# Parts of the metric names of a task in `evaluate` (task_metric) and of a comparison of two models.
SUBSETS = "subsets"
DIFFERENCE, P_VALUE = "difference", "p"


def task_metric(task: str, name: str, model: str | None = None) -> str:
    """Return the name of a task's metric, such as STS12.spearman, STS12.subsets.MSRpar or, for one
    of several models, STS12.difference/MODEL."""
    return metric_name(f"{task}.{name}" + (f"/{model}" if model is not None else ""))


def metric_name(name: str) -> str:
    """Return a name that MLflow accepts: without brackets and commas."""
    return re.sub(r"[^\w\-./: ]", "", name)
