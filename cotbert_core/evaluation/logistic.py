"""Logistic regression with an L2 penalty, fast for hundreds of fits on the same vectors.

The minimum is that of scikit-learn's LogisticRegression: for labels y of N examples with features
x, a weight vector w_k and an intercept b_k for each of K classes (one of each for two classes),

    1 / N sum_i -log p(y_i | x_i) + 1 / (2 C N) sum_k |w_k|^2

It is reached in fewer steps: the features are centred (the free intercept compensates), rotated to
their principal axes (which does not change the penalty), and scaled for the solver, L-BFGS, so that
the upper bound of the curvature along each axis is 1. For CR with all-MiniLM-L6-v2 a fit takes 6 to
8 steps instead of 15 to 33, and 12 instead of 185 to 432 for vectors that are 15 times as long, as
those of encoders that do not normalise are.

Letters: N examples, D size of a feature, K columns of logits (1 for two classes).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

# The solver stops when the largest gradient entry, in its units, is below this. Accuracies then
# equal those at 1e-8 in float64 except for one or two examples; with 1e-3 a fold of TREC, with
# vectors 15 times as long, is 1.3 points off.
TOLERANCE = 1e-4
MAX_STEPS = 1000


@dataclass(frozen=True)
class LogisticModel:
    """A fitted model. weights: (D + 1, K), the last row has the intercepts.

    converged: whether the solver converged within MAX_STEPS steps.
    """

    weights: np.ndarray
    converged: bool

    def predict(self, rows: np.ndarray) -> np.ndarray:
        """Return the classes (N,). rows: (N, D + 1) from `design`."""
        logits = rows @ self.weights
        if logits.shape[1] == 1:
            return np.asarray((logits[:, 0] > 0).astype(int))
        return np.asarray(logits.argmax(axis=1))

    def accuracy(self, rows: np.ndarray, labels: np.ndarray) -> float:
        """Return the share of right answers x 100."""
        return 100 * float((self.predict(rows) == labels).mean())


def design(*parts: np.ndarray) -> list[np.ndarray]:
    """Return rows (N, D + 1) in float32 for `fit`, one array for each part of features (N, D).

    Centre and axes come from the first part. The last column is 1, for the intercept.
    """
    centre = parts[0].mean(axis=0)
    centred = parts[0] - centre
    _, axes = np.linalg.eigh(centred.T @ centred)
    ones = [np.ones((len(part), 1), np.float32) for part in parts]
    return [
        np.hstack([((part - centre) @ axes).astype(np.float32), one])
        for part, one in zip(parts, ones, strict=True)
    ]


def fit(rows: np.ndarray, labels: np.ndarray, regularisation: float) -> LogisticModel:
    """Return the model that minimises the formula above for C = `regularisation`.

    rows: (N, D + 1), the last column is 1. labels: (N,) classes 0, 1, ..., all present.
    """
    from scipy.optimize import minimize

    count, size = rows.shape
    classes = int(labels.max()) + 1
    columns = 1 if classes == 2 else classes
    penalty = np.full((size, 1), 1 / (regularisation * count), np.float32)
    penalty[-1] = 0
    # The second derivative by a logit is p (1 - p) <= 1 / 4.
    bound = np.square(rows).mean(axis=0)[:, None] / 4
    unit = 1 / np.sqrt(np.maximum(penalty + bound, 1e-12))
    slope = _two_classes(labels) if columns == 1 else _many_classes(labels, classes)

    def objective(point: np.ndarray) -> tuple[float, np.ndarray]:
        # float32 products take 0.6 of the time of float64; the solver itself computes in float64.
        weights = (point.reshape(size, columns) * unit).astype(np.float32)
        loss, by_logit = slope(rows @ weights)
        by_weight = rows.T @ by_logit + penalty * weights
        total = loss + 0.5 * float((penalty * np.square(weights)).sum())
        return total, (by_weight * unit).ravel().astype(np.float64)

    # ftol 0: near the minimum the loss in float32 stops changing before the gradient is small.
    options = {"maxiter": MAX_STEPS, "gtol": TOLERANCE, "ftol": 0.0}
    start = np.zeros(size * columns)
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
    weights = (found.x.reshape(size, columns) * unit).astype(np.float32)
    # Status 1: step limit reached. 2: no further progress in float32, which is the minimum.
    return LogisticModel(weights, found.status != 1)


# A function of logits (N, K) that returns the mean loss and its derivative (N, K).
Slope = Callable[[np.ndarray], tuple[float, np.ndarray]]


def _two_classes(labels: np.ndarray) -> Slope:
    from scipy.special import expit

    sign = np.where(labels == 1, 1, -1).astype(np.float32)[:, None]

    def slope(logits: np.ndarray) -> tuple[float, np.ndarray]:
        margin = sign * logits
        loss = np.logaddexp(0, -margin).mean(dtype=np.float64)
        return float(loss), -sign * expit(-margin) / np.float32(len(sign))

    return slope


def _many_classes(labels: np.ndarray, classes: int) -> Slope:
    hot = np.eye(classes, dtype=np.float32)[labels]

    def slope(logits: np.ndarray) -> tuple[float, np.ndarray]:
        shifted = logits - logits.max(axis=1, keepdims=True)
        share = np.exp(shifted)
        total = share.sum(axis=1, keepdims=True)
        loss = np.log(total).mean(dtype=np.float64) - (shifted * hot).sum(1).mean(dtype=np.float64)
        return float(loss), (share / total - hot) / np.float32(len(hot))

    return slope
