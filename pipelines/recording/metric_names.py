"""The names of the metrics in MLflow, metrics.jsonl and result.json."""

from __future__ import annotations

import re

LOSS = "loss"
DEV_SPEARMAN = "dev_spearman"
# The dev score that a trial reports to Ray Tune, of either metric.
DEV_SCORE = "dev_score"
# The dev scores on held-out documents; the first one is the DevMetric.
DEV_FOUND_FIRST, DEV_MRR10 = "dev_found_first", "dev_mrr10"
# The share in % of labelled dev texts whose nearest text has the same label.
DEV_SAME_LABEL = "dev_same_label"
# The share in % of masked tokens of held-out packed rows that are predicted.
DEV_MLM_ACCURACY = "dev_mlm_accuracy"
# The readout of the untouched encoder (pipelines.training.baseline), and two of its dev scores;
# `DevMetric.baseline` names the others.
BASELINE, BASELINE_SPEARMAN, BASELINE_MRR10 = "baseline", "baseline_spearman", "baseline_mrr10"
# Per training step, over all workers: tokens without padding per second, the share of padding,
# model FLOPs per second, and model FLOPs utilization (MFU), their share of the measured peak FLOPs
# (cotbert_core.training.flops).
TOKENS_PER_SECOND = "tokens_per_second"
PADDING_SHARE = "padding_share"
MODEL_FLOPS_PER_SECOND = "model_flops_per_second"
MFU = "mfu"
# Parts of the metric names of a task in `evaluate` and of a comparison of two models:
# STS12.subsets.MSRpar, STS12.difference/MODEL.
SUBSETS = "subsets"
DIFFERENCE, P_VALUE = "difference", "p"


def model_name(name: str) -> str:
    """Return the name of a logged model without the characters that MLflow refuses; those of
    registered models may have dots."""
    return name.translate(str.maketrans("/:.%\"'", "------"))


def accepted_name(name: str) -> str:
    """Return the name of a metric, param or tag without brackets, with an underscore for each other
    character that MLflow refuses, such as commas and @, cut to its limit of 250 characters, and
    without the parts that a path may have twice or leave out."""
    name = re.sub(r"[^\w\-./: ]", "_", re.sub(r"[\[\]()]", "", name))[:250]
    return "/".join(part for part in name.split("/") if part not in ("", ".", ".."))
