"""A normalizing flow of sentence vectors (BERT-flow, Li et al., EMNLP 2020, arXiv 2011.05864).

An invertible map, trained by maximum likelihood, under which the vectors of a sample follow a
standard Gaussian distribution. It has the architecture of the released code: three levels of three
steps. A step scales and shifts each number, reverses their order, and adds a function of the first
half to the second (additive coupling). After a level the second half is final, and the first half
passes through the next level. Letters: N vectors in the sample, M vectors to map, D their size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from cotbert_core.errors import UserError, counted

LEVELS, DEPTH, WIDTH = 3, 3, 32
BATCH, LEARNING_RATE = 64, 1e-3
# Minimum number of training steps: a large sample is used for one epoch, as in the released code, a
# small one for more. More steps on a sample of 2,600 overfitted (three of four MiniLM readouts).
FEWEST_STEPS = 500
# Number of vectors that initialise scales and shifts, and that are mapped at a time.
ROWS = 8192
# A smaller standard deviation, relative to the largest, is float32 rounding error.
SMALLEST_SHARE = 1e-5


class ActNorm(nn.Module):
    """A scale and a shift per number, initialised to give the first batch mean 0 and variance 1."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.shift, self.log_scale = (nn.Parameter(torch.zeros(size)) for _ in range(2))
        self._started = False

    def forward(self, x: Tensor) -> Tensor:
        if not self._started:
            deviation = x.detach().std(dim=0, correction=0)
            self.shift.data = -x.detach().mean(dim=0)
            self.log_scale.data = -torch.where(deviation > SMALLEST_SHARE, deviation, 1.0).log()
            self._started = True
        return (x + self.shift) * self.log_scale.exp()


class Step(nn.Module):
    """One step of the flow, for the first `size` numbers of a vector; `size` is at least 2."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size, self._halves = size, [size // 2, size - size // 2]
        self.norm = ActNorm(size)
        inner: list[nn.Module] = []
        for inputs in (size // 2, WIDTH):
            inner += [nn.Linear(inputs, WIDTH), ActNorm(WIDTH), nn.ReLU()]
        last = nn.Linear(WIDTH, size - size // 2)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.added = nn.Sequential(*inner, last)

    def forward(self, x: Tensor) -> Tensor:
        first, second = torch.split(self.norm(x[:, : self._size]).flip(-1), self._halves, -1)
        return torch.cat([first, second + self.added(first), x[:, self._size :]], -1)


class FlowNetwork(nn.Module):
    """A flow for vectors of `size` numbers (D). seed: of the coupling functions' weights."""

    def __init__(self, size: int, seed: int = 0) -> None:
        super().__init__()
        sizes = [size >> level for level in range(LEVELS) if size >> level > 1]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.steps = nn.ModuleList(Step(each) for each in sizes for _ in range(DEPTH))

    def forward(self, x: Tensor) -> Tensor:
        """Return the Gaussian vectors (M, D) of vectors x (M, D)."""
        for step in self.steps:
            x = step(x)
        return x

    def log_determinant(self) -> Tensor:
        """Return the logarithm of the Jacobian's absolute determinant, which is equal for all x."""
        steps = cast(list[Step], list(self.steps))
        return sum((step.norm.log_scale.sum() for step in steps), start=torch.zeros(()))

    def log_likelihood(self, x: Tensor) -> Tensor:
        """Return the logarithms (M,) of the density at x (M, D)."""
        squares: Tensor = self(x).square().sum(dim=-1) + x.shape[-1] * math.log(2 * math.pi)
        return self.log_determinant() - squares / 2


@dataclass(frozen=True)
class Flow:
    """A fitted flow. varying: (D,) bool, False for a number that is constant in the sample and is
    dropped. mean, deviation: (K,) float64 of the other numbers, which `network` maps."""

    varying: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray
    network: FlowNetwork

    @classmethod
    def fit(cls, vectors: np.ndarray, seed: int = 0) -> Flow:
        """Return the flow of a sample (N, D), which is deterministic for a seed.

        Raises UserError for fewer than BATCH vectors, and for vectors that are all equal.
        """
        check_flow_sample(len(vectors))
        exact = np.asarray(vectors, np.float64)
        mean, deviation = exact.mean(axis=0), exact.std(axis=0)
        varying = deviation > SMALLEST_SHARE * deviation.max()
        if not varying.any():
            raise UserError("the sentences of the flow's sample all have one vector: give others")
        network = FlowNetwork(int(varying.sum()), seed)
        flow = cls(varying, mean[varying], deviation[varying], network)
        threads = torch.get_num_threads()
        # The products are too small for several threads.
        torch.set_num_threads(1)
        try:
            _train(network, flow.standardized(exact), torch.Generator().manual_seed(seed))
        finally:
            torch.set_num_threads(threads)
        return flow

    def apply(self, vectors: np.ndarray) -> np.ndarray:
        """Return the Gaussian vectors (M, K) in float32. vectors: (M, D)."""
        with torch.no_grad():
            parts = torch.split(self.standardized(np.asarray(vectors, np.float64)), ROWS)
            return np.asarray(torch.cat([self.network(part) for part in parts]).numpy())

    def standardized(self, exact: np.ndarray) -> Tensor:
        scaled = (exact[:, self.varying] - self.mean) / self.deviation
        return torch.from_numpy(scaled.astype(np.float32))


def _train(network: FlowNetwork, sample: Tensor, generator: torch.Generator) -> None:
    if not network.steps:
        return  # a single number has no other to depend on
    batches = len(sample) // BATCH
    optimizer = torch.optim.Adam(network.parameters(), LEARNING_RATE)
    with torch.no_grad():
        network(sample[torch.randperm(len(sample), generator=generator)[:ROWS]])
    for _ in range(math.ceil(FEWEST_STEPS / batches)):
        order = torch.randperm(len(sample), generator=generator)
        for rows in torch.split(order[: batches * BATCH], BATCH):
            loss = -network.log_likelihood(sample[rows]).mean() / sample.shape[1]
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()


def check_flow_sample(count: int) -> None:
    """Raise UserError for a sample of fewer sentences than a batch of the flow's training."""
    if count < BATCH:
        raise UserError(
            f"the flow has a sample of {counted(count, 'sentence')}: it needs at least {BATCH}; "
            "give more text"
        )
