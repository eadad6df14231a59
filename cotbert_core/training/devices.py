"""The device that this process computes on; all other modules get it from here.

A worker without an assigned GPU still sees the GPUs of its machine. So the code that starts a
worker sets its device, and no other module checks whether CUDA is available.
"""

from __future__ import annotations

import torch
from torch import Tensor

_chosen: torch.device | None = None


def current_device() -> torch.device:
    """Return the device that `use_device` set, by default the current GPU or else the CPU."""
    if _chosen is not None:
        return _chosen
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def usable_gpus() -> int:
    """Return the number of this machine's GPUs on which torch computes.

    If the driver is too old, torch.cuda.device_count() counts the GPUs, although none can be used.
    """
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def use_device(device: torch.device | str) -> torch.device:
    """Make `device` the one that this process loads models onto, and return it."""
    global _chosen
    _chosen = torch.device(device)
    if _chosen.type == "cuda" and _chosen.index is not None:
        # NCCL, and "cuda" without a number, use torch's current device.
        torch.cuda.set_device(_chosen)
    return _chosen


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a CPU tensor on the device.

    A GPU copies it from pinned memory while the host prepares the next batch.
    """
    if device.type != "cuda":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)
