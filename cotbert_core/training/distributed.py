"""The global batch of all workers: each worker contrasts its rows with the columns of all.

The functions work in any torch.distributed process group, and without one as a single worker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.profiler import record_function


def world_size() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    return dist.get_rank() if world_size() > 1 else 0


def in_parallel(method: nn.Module) -> nn.Module:
    """Return the method in DDP, which averages gradients; unchanged for one worker."""
    if world_size() == 1:
        return method
    # Gradients are views of the buffers that are sent, which saves their memory and 2 % of a step
    # of all-MiniLM-L6-v2.
    return nn.parallel.DistributedDataParallel(method, gradient_as_bucket_view=True)


def gather(values: Tensor) -> Tensor:
    """Return the values (W * b, ...) of all workers in rank order, without gradient."""
    if world_size() == 1:
        return values
    with record_function("gather"):
        parts = [torch.empty_like(values) for _ in range(world_size())]
        dist.all_gather(parts, values.contiguous())
        return torch.cat(parts)


def gather_with_gradient(vectors: Tensor) -> Tensor:
    """Return the vectors (W * b, D) of all workers in rank order. vectors: (b, D).

    The backward pass sums all workers' gradients for this worker's rows. If losses are means over
    local rows, DDP's average over workers is then the gradient of the global mean, without further
    scaling. (SimCSE-family code keeps only the local share.)
    """
    if world_size() == 1:
        return vectors
    return cast(Tensor, _Gather.apply(vectors))  # type: ignore[no-untyped-call]


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, vectors: Tensor) -> Tensor:
        context.rows = len(vectors)
        return gather(vectors)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        with record_function("gather"):
            total = gradient.contiguous()
            dist.all_reduce(total)
        return total[rank() * context.rows :][: context.rows]


def union(values: np.ndarray, limit: int) -> np.ndarray:
    """Return the sorted distinct integers of all workers. values: integers in 0..limit."""
    if world_size() == 1:
        return np.unique(values)
    there = torch.zeros(limit + 1, dtype=torch.int32, device=_device())
    there[torch.from_numpy(np.unique(values)).to(there.device)] = 1
    with record_function("gather"):
        dist.all_reduce(there, dist.ReduceOp.MAX)
        return np.flatnonzero(there.cpu().numpy())


def _device() -> torch.device:
    """Return the device from which the process group sends tensors."""
    return torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")


def gather_rows(values: Tensor) -> list[list[float]]:
    """Return each worker's (n,) numbers, in rank order.

    All W * n numbers are copied from the device at once, since the host waits for the device's
    earlier work at each copy.
    """
    if world_size() == 1:
        return [values.tolist()]
    own = values.double().to(_device())
    parts = [torch.empty_like(own) for _ in range(world_size())]
    with record_function("gather"):
        dist.all_gather(parts, own)
        return cast(list[list[float]], torch.stack(parts).tolist())


def sums(values: Sequence[float]) -> list[float]:
    """Return each number summed over the workers."""
    rows = gather_rows(torch.tensor(values, dtype=torch.float64))
    return [sum(column) for column in zip(*rows, strict=True)]


def gather_objects(value: Any) -> list[Any]:
    """Return each worker's small picklable value, in rank order."""
    if world_size() == 1:
        return [value]
    values: list[Any] = [None] * world_size()
    with record_function("gather"):
        dist.all_gather_object(values, value)
    return values


def encode_together(
    encode: Callable[[Sequence[str]], np.ndarray], sentences: Sequence[str]
) -> np.ndarray:
    """Return the vectors (N, D) of N sentences; each worker encodes its share of them."""
    workers = world_size()
    if workers == 1:
        return encode(sentences)
    shares: list[np.ndarray] = gather_objects(encode(sentences[rank() :: workers]))
    vectors = np.empty((len(sentences), shares[0].shape[1]), shares[0].dtype)
    for start, share in enumerate(shares):
        vectors[start::workers] = share
    return vectors
