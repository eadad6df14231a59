"""The number format of matrix products, chosen by what the machine supports.

bf16 on a CPU without instructions for it can be 100 times slower than fp32.

fp32 means fp32 on a GPU too: TF32, which rounds the factors of a product to 10 bits, stays off, as
is torch's default. Every GPU with TF32 also has bf16, which is twice as fast and is what `auto`
selects; fp32 is for reference results.
"""

from __future__ import annotations

from typing import Literal

import torch

from cotbert_core.settings import Precision


def has_fast_bf16(device: torch.device) -> bool:
    """Return whether the device multiplies bf16 matrices in hardware."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    # private: torch.cpu.get_capabilities names instructions, not whether oneDNN takes bf16 by them
    return device.type == "cpu" and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def resolve_precision(precision: Precision, device: torch.device) -> Literal["bf16", "fp32"]:
    """Return the number format; `auto` is bf16 if the device supports it, else fp32."""
    if precision == "auto":
        return "bf16" if has_fast_bf16(device) else "fp32"
    return precision


def autocast(precision: Precision, device: torch.device) -> torch.autocast:
    """Return a context in which matrix products use the chosen format; weights stay fp32."""
    chosen = resolve_precision(precision, device)
    return torch.autocast(device.type, torch.bfloat16, enabled=chosen == "bf16")
