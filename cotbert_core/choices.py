"""The values that a setting or an option may take. Imported by the command line: nothing heavy."""

from __future__ import annotations

from typing import Literal

Precision = Literal["auto", "bf16", "fp32"]
Attention = Literal["auto", "plain", "eager", "sdpa", "unpadded"]
Backend = Literal["auto", "torch", "openvino"]
Denoise = Literal["none", "position", "pad"]
