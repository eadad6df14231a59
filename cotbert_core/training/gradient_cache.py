"""Large batches in little memory: the backward pass recomputes activations.

A contrastive loss needs the vectors of the whole batch at once, but not their activations.
GradCache (Gao et al., 2021) therefore encodes the batch twice: once without activations, for the
loss and its gradient with respect to the vectors; then one mini-batch after another, to propagate
that gradient. Here each mini-batch is a checkpoint of torch's autograd, which does the same with
any loss, with several workers (the gradient of a weight is complete, and sent, once) and with the
dropout of the first pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch.utils.checkpoint import checkpoint

Result = TypeVar("Result")


def recomputed(function: Callable[..., Result], *inputs: Any, device: torch.device | str) -> Result:
    """Return `function(*inputs)` without keeping its activations.

    The backward pass computes them again, with the same dropout. device: the device on which the
    function samples dropout.
    """
    # torch restores a GPU's random state for the second pass only if one of the inputs is a tensor
    # on that GPU, and it does not look into dataclasses. Without this marker the second pass
    # sampled different dropout: the gradient of CoT-BERT was wrong by 1.6 times its length.
    marker = torch.empty(0, device=device)
    # torch's check that both passes keep the same tensors cannot read the shapes of jagged tensors.
    options: dict[str, Any] = {"use_reentrant": False, "determinism_check": "none"}
    return cast(Result, checkpoint(lambda _, *rest: function(*rest), marker, *inputs, **options))
