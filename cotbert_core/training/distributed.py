"""The global batch across workers: every worker contrasts its rows with everyone's columns.

Works in any torch.distributed process group, and as one worker when there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from cotbert_core.training.step_timer import section


def world_size() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    return dist.get_rank() if world_size() > 1 else 0


def in_parallel(method: nn.Module) -> nn.Module:
    """The method under DDP, which averages gradients over workers; as it is where there is one."""
    if world_size() == 1:
        return method
    # Gradients lie where they are sent from: 2 % of a step of all-MiniLM-L6-v2, and their size.
    return nn.parallel.DistributedDataParallel(method, gradient_as_bucket_view=True)


def gather_with_gradient(vectors: Tensor) -> Tensor:
    """(b, D) on each worker -> (W * b, D) in rank order on all of them.

    Backward sums, over workers, the gradient that each has for this worker's rows. With losses
    that are means over local rows, DDP's average over workers then is the gradient of the global
    mean: no further scaling. (SimCSE-family code keeps only the local share.)
    """
    if world_size() == 1:
        return vectors
    return cast(Tensor, _Gather.apply(vectors))  # type: ignore[no-untyped-call]


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, vectors: Tensor) -> Tensor:
        context.rows = len(vectors)
        with section("gather"):
            parts = [torch.empty_like(vectors) for _ in range(world_size())]
            dist.all_gather(parts, vectors.contiguous())
            return torch.cat(parts)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        with section("gather"):
            total = gradient.contiguous()
            dist.all_reduce(total)
        return total[rank() * context.rows :][: context.rows]


def union(values: np.ndarray, limit: int) -> np.ndarray:
    """The distinct numbers, each in 0..limit, that any worker has, in order, on all of them."""
    if world_size() == 1:
        return np.unique(values)
    there = torch.zeros(limit + 1, dtype=torch.int32, device=_device())
    there[torch.from_numpy(np.unique(values)).to(there.device)] = 1
    with section("gather"):
        dist.all_reduce(there, dist.ReduceOp.MAX)
        return np.flatnonzero(there.cpu().numpy())


def _device() -> torch.device:
    """Where the process group takes tensors from."""
    return torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")


def gather_values(value: float) -> list[float]:
    """One number of each worker, in rank order, on all of them."""
    if world_size() == 1:
        return [value]
    return [row[0] for row in gather_rows(torch.tensor([value], dtype=torch.float64))]


def gather_rows(values: Tensor) -> list[list[float]]:
    """Return the (n,) numbers of each worker, in rank order, on all of them.

    All W * n numbers come from the device in one transfer, since the host waits for each transfer
    until the device has done everything before it.
    """
    if world_size() == 1:
        return [values.tolist()]
    own = values.double().to(_device())
    parts = [torch.empty_like(own) for _ in range(world_size())]
    with section("gather"):
        dist.all_gather(parts, own)
        return cast(list[list[float]], torch.stack(parts).tolist())


def sums(values: Sequence[float]) -> list[float]:
    """Each number summed over the workers, on all of them."""
    if world_size() == 1:
        return list(values)
    total = torch.tensor(values, dtype=torch.float64, device=_device())
    with section("gather"):
        dist.all_reduce(total)
        return cast(list[float], total.tolist())


def gather_objects(value: Any) -> list[Any]:
    """A small picklable value of each worker, in rank order, on all of them."""
    if world_size() == 1:
        return [value]
    values: list[Any] = [None] * world_size()
    with section("gather"):
        dist.all_gather_object(values, value)
    return values


def encode_together(
    encode: Callable[[Sequence[str]], np.ndarray], sentences: Sequence[str]
) -> np.ndarray:
    """(N,) sentences -> (N, D) on every worker, each having encoded its share of them."""
    workers = world_size()
    if workers == 1:
        return encode(sentences)
    shares: list[np.ndarray] = gather_objects(encode(sentences[rank() :: workers]))
    vectors = np.empty((len(sentences), shares[0].shape[1]), shares[0].dtype)
    for start, share in enumerate(shares):
        vectors[start::workers] = share
    return vectors
