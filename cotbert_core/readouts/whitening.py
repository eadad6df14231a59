"""Whitening of sentence vectors (BERT-whitening, Su et al. 2021, arXiv 2103.15316, section 3).

x' = (x - mean) U diag(eigenvalues)^-1/2: over the sample the K components have variance 1 and no
covariance. Letters: N vectors in the sample, M vectors to whiten, D their size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotbert_core.errors import UserError, counted

# A direction with a smaller share of the largest eigenvalue (a deviation 100,000 times smaller) is
# float32 rounding error, which scaling would amplify.
SMALLEST_SHARE = 1e-10


@dataclass(frozen=True)
class Whitening:
    """A whitening transform. mean: (D,) float64. kernel: (D, K) float64, one column per component.

    The component with the largest variance is first; one without variance has a column of zeros.
    """

    mean: np.ndarray
    kernel: np.ndarray

    @classmethod
    def fit(cls, vectors: np.ndarray, dimensions: int | None = None) -> Whitening:
        """Return the whitening of a sample (N, D). dimensions: K, number of components (None: D).

        Raises UserError unless N > D and 1 <= K <= D.
        """
        exact = np.asarray(vectors, np.float64)
        check_sample(len(exact), exact.shape[1], dimensions)
        mean = exact.mean(axis=0)
        centred = exact - mean
        covariance = centred.T @ centred / (len(exact) - 1)
        variances, directions = np.linalg.eigh(covariance)
        variances, directions = variances[::-1][:dimensions], directions[:, ::-1][:, :dimensions]
        nonzero = variances > SMALLEST_SHARE * variances[0]
        scales = np.zeros_like(variances)
        scales[nonzero] = variances[nonzero] ** -0.5
        return cls(mean, directions * scales)

    def apply(self, vectors: np.ndarray) -> np.ndarray:
        """Return whitened vectors (M, K) in float64. vectors: (M, D)."""
        return np.asarray((np.asarray(vectors, np.float64) - self.mean) @ self.kernel)


def check_sample(count: int, size: int, dimensions: int | None = None) -> None:
    """Raise UserError unless `count` vectors of `size` numbers can be whitened to `dimensions`."""
    if count <= size:
        raise UserError(
            f"whitening has a sample of {counted(count, 'sentence')} for vectors of {size} "
            f"numbers: it needs at least {size + 1} sentences; give more text"
        )
    if dimensions is not None and not 1 <= dimensions <= size:
        raise UserError(f"whitening dimensions is {dimensions}: give 1 to {size}, the vector size")
