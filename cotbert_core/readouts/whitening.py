"""Whitening of sentence vectors (BERT-whitening, Su et al. 2021, arXiv 2103.15316, section 3).

x' = (x - mean) U diag(eigenvalues)^-1/2, so that over the sample the K components kept have
variance 1 and no covariance. Letters: N vectors of the sample, M vectors, D their size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotbert_core.errors import UserError

# Of the largest eigenvalue: a direction with less variance than this (a deviation 100,000 times
# smaller) is the rounding of float32 vectors, and scaling that up would drown the others.
SMALLEST_SHARE = 1e-10


@dataclass(frozen=True)
class Whitening:
    """mean: (D,); kernel: (D, K), a column a component, largest variance first; both float64.

    A component without variance in the sample has a column of zeros.
    """

    mean: np.ndarray
    kernel: np.ndarray

    @classmethod
    def fit(cls, vectors: np.ndarray, dimensions: int | None = None) -> Whitening:
        """From a sample (N, D), keeping the K = `dimensions` largest components (None: all D).

        Raises UserError unless N > D and 1 <= K <= D.
        """
        exact = np.asarray(vectors, np.float64)
        check_sample(len(exact), exact.shape[1], dimensions)
        mean = exact.mean(axis=0)
        centred = exact - mean
        covariance = centred.T @ centred / (len(exact) - 1)
        variances, directions = np.linalg.eigh(covariance)
        variances, directions = variances[::-1][:dimensions], directions[:, ::-1][:, :dimensions]
        solid = variances > SMALLEST_SHARE * variances[0]
        scales = np.zeros_like(variances)
        scales[solid] = variances[solid] ** -0.5
        return cls(mean, directions * scales)

    def apply(self, vectors: np.ndarray) -> np.ndarray:
        """(M, D) -> (M, K), float64."""
        return np.asarray((np.asarray(vectors, np.float64) - self.mean) @ self.kernel)


def check_sample(count: int, size: int, dimensions: int | None = None) -> None:
    """UserError unless `count` vectors of `size` numbers can be whitened to `dimensions`."""
    if count <= size:
        raise UserError(
            f"whitening has a sample of {count} sentences for vectors of {size} numbers: it needs "
            f"at least {size + 1}; give more text"
        )
    if dimensions is not None and not 1 <= dimensions <= size:
        raise UserError(f"whitening dimensions is {dimensions}: give 1 to {size}, the vector size")
