"""The number format of matrix products, chosen by what the machine supports.

bf16 on a CPU without instructions for it can be 100 times slower than fp32. An Intel CPU with such
instructions is still slower in bf16 if AMX is missing or hidden by its virtual machine: on 2 cores
of a Xeon (Emerald Rapids, 2026-11-24) matrix products ran at 170 GFLOP/s in bf16 and at 210 to 330
in fp32, `encode()` of all-MiniLM-L6-v2 at 237 and 391 sentences/s. AMD's AVX-512 doubles the rate
of fp32, AMX multiplies it.

fp32 means fp32 on a GPU too: TF32, which rounds the factors of a product to 10 bits, stays off, as
is torch's default. Every GPU with TF32 also has bf16, which is twice as fast and is what `auto`
selects; fp32 is for reference results.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn

from cotbert_core.settings import Precision


def has_fast_bf16(device: torch.device) -> bool:
    """Return whether the device multiplies bf16 matrices faster than those of fp32."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    if device.type != "cpu":
        return False
    # private: torch.cpu.get_capabilities names instructions, not whether oneDNN takes bf16 by them
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():  # noqa: SLF001
        return False
    cpu = torch.cpu.get_capabilities()
    return bool(cpu.get("amx_bf16")) or not str(cpu.get("cpu_name")).startswith("Intel")


def resolve_precision(precision: Precision, device: torch.device) -> Literal["bf16", "fp32"]:
    """Return the number format; `auto` is bf16 if it is faster on the device, else fp32."""
    if precision == "auto":
        return "bf16" if has_fast_bf16(device) else "fp32"
    return precision


def cast_weights(model: nn.Module, precision: Precision) -> None:
    """Cast the weights of linear layers once to the format of their products, for inference alone.

    `autocast` does it in each forward pass, in 2 of the 5 ms that all-MiniLM-L6-v2 needs for a
    short text on a CPU. The vectors are the same, to the last bit.
    """
    device = next(model.parameters()).device
    if resolve_precision(precision, device) == "bf16":
        for module in model.modules():
            if isinstance(module, nn.Linear):
                module.to(torch.bfloat16)


def autocast(precision: Precision, device: torch.device) -> torch.autocast:
    """Return a context in which matrix products use the chosen format; weights stay fp32."""
    chosen = resolve_precision(precision, device)
    return torch.autocast(device.type, torch.bfloat16, enabled=chosen == "bf16")
