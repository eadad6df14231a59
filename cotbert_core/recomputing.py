"""Large batches in little memory: activations computed again in the backward pass.

A contrastive loss needs the vectors of the whole batch at once, but not the activations behind
them. GradCache (Gao et al., 2021) therefore encodes the batch twice: once without activations, for
the loss and its gradient on the vectors; then chunk by chunk, to carry that gradient on. Here each
chunk is a checkpoint of torch's autograd, which does the same with any loss, with several workers
(a weight's gradient is complete, and sent, once) and with the dropout of the first pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch.utils.checkpoint import checkpoint

Result = TypeVar("Result")


def recomputed(function: Callable[..., Result], *inputs: Any) -> Result:
    """`function(*inputs)`, of which the backward pass finds the result alone and computes the rest
    again, with the same dropout."""
    if not torch.is_grad_enabled():
        return function(*inputs)
    # torch's check that both passes keep alike tensors cannot read the shapes of jagged ones.
    options: dict[str, Any] = {"use_reentrant": False, "determinism_check": "none"}
    return cast(Result, checkpoint(function, *inputs, **options))
