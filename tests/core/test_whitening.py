"""Whitening against its definition: mean 0, variance 1 and no covariance over the sample."""

from __future__ import annotations

import numpy as np
import pytest

from cotbert_core import UserError
from cotbert_core.readouts.whitening import Whitening


@pytest.fixture
def sample():
    """(60, 8) correlated vectors far from the origin, one number 1,000 times the others."""
    draw = np.random.default_rng(0)
    mixed = draw.normal(size=(60, 8)) @ draw.normal(size=(8, 8)) + draw.normal(size=8) * 5
    return (mixed * [1, 1, 1000, 1, 1, 1, 1, 1]).astype(np.float32)


def test_the_sample_has_mean_0_and_covariance_1(sample):
    whitening = Whitening.fit(sample)
    white = whitening.apply(sample)
    assert (white.shape, white.dtype) == ((60, 8), np.float64)
    np.testing.assert_allclose(white.mean(axis=0), 0, atol=1e-10)
    np.testing.assert_allclose(np.cov(white.T), np.eye(8), atol=1e-8)
    assert np.abs(np.cov(sample.T) - np.eye(8)).max() > 1, "premise"


def test_others_are_moved_and_turned_as_the_sample_was(sample):
    """x' = (x - mean) U diag(eigenvalues)^-1/2, by the singular values of the sample itself."""
    others = np.random.default_rng(1).normal(size=(5, 8))
    whitening = Whitening.fit(sample)
    exact = sample.astype(np.float64)
    mean = np.array([sum(column) / 60 for column in exact.T])
    _, singular, directions = np.linalg.svd(exact - mean, full_matrices=False)
    expected = (others - mean) @ directions.T / (singular / np.sqrt(59))
    np.testing.assert_allclose(np.abs(whitening.apply(others)), np.abs(expected), rtol=1e-6)


@pytest.mark.parametrize("dimensions", [1, 3, 8])
def test_fewer_dimensions_are_the_first_of_all(sample, dimensions):
    whole, fewer = Whitening.fit(sample), Whitening.fit(sample, dimensions)
    assert fewer.kernel.shape == (8, dimensions)
    white = whole.apply(sample)
    np.testing.assert_allclose(fewer.apply(sample), white[:, :dimensions], atol=1e-12)
    largest = abs(np.corrcoef(sample[:, 2], white[:, 0])[0, 1])
    assert largest == pytest.approx(1, abs=1e-4), "the number 1,000 times the others comes first"


def test_a_direction_without_variance_stays_out(sample):
    flat = np.concatenate([sample, sample[:, :2].sum(axis=1, keepdims=True)], axis=1)
    flat = np.concatenate([flat, np.full((60, 1), 7, np.float32)], axis=1)
    whitening = Whitening.fit(flat)
    assert np.isfinite(whitening.kernel).all()
    white = whitening.apply(flat)
    np.testing.assert_allclose(white.var(axis=0, ddof=1)[:8], 1, atol=1e-6)
    assert not white[:, 8:].any()
    equal = Whitening.fit(np.ones((9, 3), np.float32)).apply(np.ones((2, 3)))
    assert equal.tolist() == [[0, 0, 0]] * 2


@pytest.mark.parametrize(
    ("count", "dimensions", "fault"),
    [
        (8, None, "sample of 8 sentences for vectors of 8 numbers: it needs at least 9"),
        *((60, n, f"whitening dimensions is {n}: give 1 to 8") for n in (0, 9, -1)),
    ],
)
def test_what_cannot_be_whitened_is_refused(sample, count, dimensions, fault):
    with pytest.raises(UserError, match=fault):
        Whitening.fit(sample[:count], dimensions)
    assert Whitening.fit(sample[:9]).kernel.shape == (8, 8)
