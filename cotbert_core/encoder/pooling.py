"""Pooling: functions that read a sentence vector from the last layer of an encoder.

Letters: N rows, L tokens, D hidden size. Each function takes hidden (N, L, D), readout (N,) the
position of each row's last mask, and lengths (N,) in tokens, and returns (N, D).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Readout = Callable[[Tensor, Tensor, Tensor], Tensor]


def read_mask(hidden: Tensor, readout: Tensor, lengths: Tensor) -> Tensor:
    """Return the vector at each row's last mask."""
    return hidden[torch.arange(len(hidden), device=hidden.device), readout]


def read_cls(hidden: Tensor, readout: Tensor, lengths: Tensor) -> Tensor:
    """Return the vector of the first token."""
    return hidden[:, 0]


def read_mean(hidden: Tensor, readout: Tensor, lengths: Tensor) -> Tensor:
    """Return the mean over all attended tokens, including special tokens; zeros if there are none,
    as of an empty text in an ONNX graph whose tokenizer adds no special tokens."""
    attended = torch.arange(hidden.shape[1], device=hidden.device) < lengths[:, None]
    summed = (hidden * attended.unsqueeze(-1)).sum(dim=1, dtype=torch.float32)
    return summed / lengths.clamp(min=1)[:, None]


READOUTS: dict[str, Readout] = {"mask": read_mask, "cls": read_cls, "mean": read_mean}
