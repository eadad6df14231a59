"""What a step gives an encoder to do: tokens, padding, and the FLOPs that the model takes.

Model FLOPs are those that the mathematics needs, whatever the machine does: 2 for each
multiply-add of the linear layers and of attention's two products, the backward pass twice the
forward one, on real tokens alone. Padding and activations that are computed again do not count, nor
do embeddings, norms, softmax, heads and the loss (Narayanan et al., 2021, appendix, without their
recomputation; Chowdhery et al., 2022, appendix B, "model FLOPs utilization"). Letters: n tokens of
a row, D hidden size, F inner size of the feed-forward, L layers.
"""

from __future__ import annotations

import time
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from cotbert_core.settings import Precision
from cotbert_core.training.precision import resolve_precision

# Rows of the square matrices whose product is timed, 2 (bf16) to 14 ms (fp32) on one AVX512 core,
# and for how long it is tried: on a machine that does other things most tries are disturbed.
CPU_PRODUCT, CUDA_PRODUCT, RATE_SECONDS = 1024, 8192, 0.25


@dataclass(frozen=True)
class Work:
    """tokens: attended ones; padding: the others of the batches; bias_tokens: tokens of rows of
    the empty template, among `tokens`; flops: of the model, forward and backward."""

    tokens: float = 0.0
    padding: float = 0.0
    bias_tokens: float = 0.0
    flops: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    @property
    def padding_share(self) -> float:
        """Of all tokens that the encoder was given."""
        return self.padding / max(1.0, self.tokens + self.padding)

    @property
    def bias_share(self) -> float:
        """Of the tokens that are no padding."""
        return self.bias_tokens / max(1.0, self.tokens)


def transformer_flops(
    lengths: np.ndarray, hidden: int, layers: int, weights: int, trained: int, *, backward: bool
) -> float:
    """Model FLOPs of rows of (N,) lengths through L layers.

    weights: all that a token meets in linear layers, L (4 D^2 + 2 D F) in BERT; trained: those that
    have a gradient. Forward 2 a weight and token; backward 2 for the input's gradient and 2 for
    that of a trained weight. Attention's products are 4 n^2 D a layer and row, thrice with
    backward.
    """
    tokens, squares = float(lengths.sum()), float((lengths.astype(np.float64) ** 2).sum())
    linear = 2.0 * tokens * (2 * weights + trained if backward else weights)
    return linear + 4.0 * squares * hidden * layers * (3 if backward else 1)


def encoder_flops(model: Any, lengths: np.ndarray, *, backward: bool = True) -> float:
    """Model FLOPs of a transformers encoder for rows of (N,) lengths; the pooler is left out,
    since nothing reads it. Exact for BERT, RoBERTa and all whose layers each have their own
    weights."""
    weights, trained = linear_weights(model, but="pooler")
    config = model.config
    return transformer_flops(
        lengths, config.hidden_size, config.num_hidden_layers, weights, trained, backward=backward
    )


def linear_weights(model: nn.Module, but: str | None = None) -> tuple[int, int]:
    """How many weights the linear layers have, and how many of them have a gradient, without the
    layers inside a part of the name `but`."""
    linear = [
        module.weight
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and but not in name.split(".")
    ]
    return sum(w.numel() for w in linear), sum(w.numel() for w in linear if w.requires_grad)


def measured_peak_flops(precision: Precision, device: torch.device) -> float:
    """FLOPs a second of the device in the chosen format: the fastest product of two square
    matrices of CPU_PRODUCT or CUDA_PRODUCT rows by this process's threads in RATE_SECONDS.

    What the machine reaches in practice, not what its maker states. Draws nothing from torch's own
    random numbers.
    """
    size = CUDA_PRODUCT if device.type == "cuda" else CPU_PRODUCT
    bf16 = resolve_precision(precision, device) == "bf16"
    generator = torch.Generator(device).manual_seed(0)
    square = torch.rand(size, size, generator=generator, device=device)
    square = square.to(torch.bfloat16 if bf16 else torch.float32)
    _product_seconds(square)  # the first one fills caches
    until, best = time.perf_counter() + RATE_SECONDS, _product_seconds(square)
    while time.perf_counter() < until:
        best = min(best, _product_seconds(square))
    return 2.0 * size**3 / best


def _product_seconds(square: torch.Tensor) -> float:
    started = time.perf_counter()
    product = square @ square
    float(product[0, 0])  # a GPU has then done it
    return time.perf_counter() - started
