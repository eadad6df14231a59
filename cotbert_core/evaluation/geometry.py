"""Alignment, uniformity and anisotropy of vectors. Letters: N sentences, D size of a vector."""

from __future__ import annotations

import numpy as np

# The rows of the distance matrix computed at once: 1,024 x 10,000 distances take 80 MB.
BLOCK = 1024


def alignment(left: np.ndarray, right: np.ndarray) -> float:
    """Return the mean |f(x) - f(x+)|^2 over pairs of unit vectors (CoT-BERT eq. 4).

    left, right: (N, D); row i of both has the same meaning (a gold score above 4). Lower is better.
    """
    return float((np.square(unit_rows(left) - unit_rows(right)).sum(axis=1)).mean())


def uniformity(vectors: np.ndarray) -> float:
    """Return log mean exp(-2 |f(x) - f(y)|^2) over all pairs x != y (CoT-BERT eq. 5).

    vectors: (N, D) of distinct sentences. Lower is better; NaN for fewer than two. Distances are
    computed block by block.
    """
    from scipy.special import logsumexp  # imported here, since it takes 0.4 s

    unit = unit_rows(vectors)
    count = len(unit)
    if count < 2:  # else numpy warns
        return float("nan")
    squares = np.square(unit).sum(axis=1)  # 1, or 0 for a zero vector
    partial = []
    for start in range(0, count, BLOCK):
        rows = unit[start : start + BLOCK]
        both = squares[start : start + BLOCK, None] + squares[start:]
        exponents = -2.0 * (both - 2.0 * (rows @ unit[start:].T))
        above = np.arange(exponents.shape[1]) > np.arange(len(rows))[:, None]
        partial.append(logsumexp(exponents, b=above))
    return float(logsumexp(partial) - np.log(count * (count - 1) / 2))


def anisotropy(vectors: np.ndarray) -> float:
    """Return |sum over i != j of cos(s_i, s_j)| / (N^2 - N) (PromptBERT eq. 1).

    vectors: (N, D); NaN for fewer than two. The sum of all cosines is |sum of the unit vectors|^2,
    so no N x N matrix is needed.
    """
    unit = unit_rows(vectors)
    count = len(unit)
    if count < 2:
        return float("nan")
    total = np.square(unit.sum(axis=0)).sum() - np.square(unit).sum()
    return float(abs(total) / (count * count - count))


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    """Return the rows scaled to unit length, in float64."""
    exact = np.asarray(vectors, np.float64)
    norms = np.linalg.norm(exact, axis=1, keepdims=True)
    return np.asarray(exact / np.maximum(norms, 1e-12))
