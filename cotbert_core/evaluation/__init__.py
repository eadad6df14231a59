"""Evaluation: pure functions of an encoder's functions and data.

The names here are the public ones; all others are imported from their modules.
"""

from cotbert_core.evaluation.geometry import alignment, anisotropy, uniformity
from cotbert_core.evaluation.sts import evaluate_sts

__all__ = ["alignment", "anisotropy", "evaluate_sts", "uniformity"]
