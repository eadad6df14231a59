"""How a sentence vector is read from the last layer. Letters: N rows, L tokens, D hidden size."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Readout = Callable[[Tensor, Tensor, Tensor], Tensor]


def read_mask(hidden: Tensor, readout: Tensor, lengths: Tensor) -> Tensor:
    """(N, L, D) -> (N, D): the vector at each row's own last mask."""
    return hidden[torch.arange(len(hidden), device=hidden.device), readout]


def read_cls(hidden: Tensor, readout: Tensor, lengths: Tensor) -> Tensor:
    """(N, L, D) -> (N, D): the vector of the first token."""
    return hidden[:, 0]


def read_mean(hidden: Tensor, readout: Tensor, lengths: Tensor) -> Tensor:
    """(N, L, D) -> (N, D): the mean over all attended tokens, special tokens included."""
    attended = torch.arange(hidden.shape[1], device=hidden.device) < lengths[:, None]
    summed = (hidden * attended.unsqueeze(-1)).sum(dim=1, dtype=torch.float32)
    return summed / lengths[:, None]


READOUTS: dict[str, Readout] = {"mask": read_mask, "cls": read_cls, "mean": read_mean}
