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


def recomputed(function: Callable[..., Result], *inputs: Any, device: torch.device | str) -> Result:
    """Return `function(*inputs)` without keeping its activations: the backward pass computes them
    again, with the same dropout.

    device: the one that the function draws its dropout on.
    """
    if not torch.is_grad_enabled():
        return function(*inputs)
    # torch restores a GPU's random state for the second pass only where it finds a tensor of that
    # GPU among the inputs, and it does not look into a dataclass. Without this one the second pass
    # drew other dropout: the gradient of CoT-BERT was wrong by 1.6 times its length.
    marker = torch.empty(0, device=device)
    # torch's check that both passes keep alike tensors cannot read the shapes of jagged ones.
    options: dict[str, Any] = {"use_reentrant": False, "determinism_check": "none"}
    return cast(Result, checkpoint(lambda _, *rest: function(*rest), marker, *inputs, **options))
