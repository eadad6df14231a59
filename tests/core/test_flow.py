"""The flow's densities against autograd, and what training makes of it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

from cotbert_core import UserError
from cotbert_core.readouts import flow
from cotbert_core.readouts.flow import Flow, FlowNetwork


@pytest.fixture
def sample():
    """(600, 6) vectors: the last three numbers are the squares of the first, with some noise."""
    draw = np.random.default_rng(0)
    free = draw.normal(size=(600, 3))
    curved = np.concatenate([free, free**2 + 0.1 * draw.normal(size=(600, 3))], axis=1)
    return (curved * [1, 1, 1000, 1, 0.01, 1] + 5).astype(np.float32)


@pytest.fixture
def few_steps(monkeypatch):
    monkeypatch.setattr(flow, "FEWEST_STEPS", 20)


def random_network(size):
    """A flow in which every parameter matters. Its first batch was seen."""
    network, draw = FlowNetwork(size).double(), torch.Generator().manual_seed(1)
    network(torch.randn(50, size, generator=draw, dtype=torch.float64))
    for parameter in network.parameters():
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=draw, dtype=parameter.dtype)
    return network


@pytest.mark.parametrize("size", [2, 3, 5, 8])
def test_the_density_is_that_of_autograd_s_jacobian(size):
    network = random_network(size)
    x = torch.randn(4, size, dtype=torch.float64)
    for row, found in zip(x, network.log_likelihood(x), strict=True):
        z = network(row[None])[0]
        jacobian = torch.autograd.functional.jacobian(lambda r: network(r[None])[0], row)
        determinant = torch.linalg.slogdet(jacobian).logabsdet
        gaussian = sum(-(v**2) / 2 - math.log(math.sqrt(2 * math.pi)) for v in z.tolist())
        assert found.item() == pytest.approx(gaussian + determinant.item(), abs=1e-6)
        assert network.log_determinant().item() == pytest.approx(determinant.item(), abs=1e-9)
        assert abs(determinant.item()) > 1e-2, "premise"


def test_every_number_reaches_every_other_of_its_level():
    network = random_network(8)
    jacobian = torch.autograd.functional.jacobian(
        lambda row: network(row[None])[0], torch.randn(8, dtype=torch.float64)
    )
    assert (jacobian[:4].abs() > 1e-9).all(), "those that go through all levels"
    assert len(network.steps) == flow.LEVELS * flow.DEPTH


def test_training_makes_the_vectors_likelier_than_a_gaussian_does(sample, monkeypatch):
    monkeypatch.setattr(flow, "FEWEST_STEPS", 250)
    learned, others = sample[:400], sample[400:]
    fitted = Flow.fit(learned)
    mean, deviation = learned.mean(axis=0), learned.std(axis=0)
    x = torch.from_numpy((others - mean) / deviation)
    untrained = FlowNetwork(6)
    with torch.no_grad():
        untrained(torch.from_numpy((learned - mean) / deviation))
        before, after = (n.log_likelihood(x).mean() for n in (untrained, fitted.network))
    exact = ((learned - mean) / deviation).astype(np.float64)
    gaussian = multivariate_normal(exact.mean(axis=0), np.cov(exact.T)).logpdf(x).mean()
    assert after > before + 1
    assert after > gaussian + 1
    z = fitted.apply(learned)
    assert (z.shape, z.dtype) == ((400, 6), np.float32)
    np.testing.assert_allclose(z.mean(axis=0), 0, atol=0.5)
    np.testing.assert_allclose(z.std(axis=0), 1, atol=0.5)


def test_a_map_depends_on_sample_and_seed_alone(sample, few_steps, monkeypatch):
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    fitted = Flow.fit(sample)
    whole = fitted.apply(sample)
    flat = np.concatenate([sample[:, :2], np.full((600, 1), 0.1, np.float32), sample[:, 2:]], 1)
    without = Flow.fit(flat)  # a number without variance stays out
    np.testing.assert_array_equal(without.apply(flat), whole)
    assert np.isfinite(without.apply(flat + 1)).all()
    assert np.abs(Flow.fit(sample, 1).apply(sample) - whole).max() > 1e-2
    assert torch.equal(torch.rand(3), expected), "other random numbers are left alone"
    monkeypatch.setattr(flow, "ROWS", 7)
    np.testing.assert_allclose(fitted.apply(sample), whole, atol=1e-4)
    np.testing.assert_allclose(fitted.apply(sample[5:6]), whole[5:6], atol=1e-4)
    assert fitted.apply(sample[:0]).shape == (0, 6)


def test_few_numbers_and_few_samples(sample, few_steps):
    numbers = np.random.default_rng(0).normal(3, 5, size=(80, 1))
    expected = (numbers - numbers.mean()) / numbers.std()
    np.testing.assert_allclose(Flow.fit(numbers).apply(numbers), expected, atol=1e-6)
    with pytest.raises(UserError, match="a sample of 63 sentences: it needs at least 64; give"):
        Flow.fit(sample[:63])
    assert Flow.fit(sample[:64]).apply(sample).shape == (600, 6)
    with pytest.raises(UserError, match="all have one vector: give others"):
        Flow.fit(np.full((100, 3), 0.1, np.float32))
