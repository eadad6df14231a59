"""Evaluation: pure functions of an encoder's functions and data."""

from __future__ import annotations

from cotbert_core.evaluation.geometry import alignment, anisotropy, uniformity
from cotbert_core.evaluation.held_out import (
    HeldOut,
    HeldOutScores,
    score_held_out,
    score_keywords,
)
from cotbert_core.evaluation.labelled import (
    Labelled,
    NearestLabels,
    nearest_labels,
    same_label,
    widening,
)
from cotbert_core.evaluation.pairs import (
    EncodeFunctions,
    Pairs,
    PairScores,
    read_pairs,
    score_pairs,
)
from cotbert_core.evaluation.searches import EncoderScores, score_searches
from cotbert_core.evaluation.sts import STS_TASKS, evaluate_sts, load_dev

__all__ = [
    "STS_TASKS",
    "EncodeFunctions",
    "EncoderScores",
    "HeldOut",
    "HeldOutScores",
    "Labelled",
    "NearestLabels",
    "PairScores",
    "Pairs",
    "alignment",
    "anisotropy",
    "evaluate_sts",
    "load_dev",
    "nearest_labels",
    "read_pairs",
    "same_label",
    "score_held_out",
    "score_keywords",
    "score_pairs",
    "score_searches",
    "uniformity",
    "widening",
]
