"""The order of dev scores, of which higher ones are better."""

from __future__ import annotations

import math


def sort_key(score: float) -> float:
    """Return the number by which a dev score is sorted: the score itself, or -inf for NaN.

    Spearman's correlation is NaN if all cosines are equal, and max and sorted would leave a NaN
    wherever it is.
    """
    return -math.inf if math.isnan(score) else score
