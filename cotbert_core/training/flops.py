"""The work of a training step: tokens, padding and model FLOPs.

Model FLOPs are those that the mathematics requires: 2 for each multiply-add of the linear layers
and of attention's two products, and twice as many in the backward pass, for real tokens only.
Padding, recomputed activations, embeddings, norms, softmax, heads and the loss do not count, except
the vocabulary heads of masked language modelling and DenoSent (Narayanan et al., 2021, appendix,
without their recomputation; Chowdhery et al., 2022, appendix B, "model FLOPs utilization", MFU).
Letters: n tokens of a row, D hidden size, F inner size of the feed-forward, L layers.
"""

from __future__ import annotations

import time
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from cotbert_core.encoder.prefixes import prefix_length
from cotbert_core.settings import Precision
from cotbert_core.training.precision import resolve_precision

# The size of the square matrices whose product is timed (2 ms in bf16 to 14 ms in fp32 on an AVX512
# core), and the seconds for which it is repeated: on a busy machine most repetitions are slowed.
CPU_PRODUCT, CUDA_PRODUCT, RATE_SECONDS = 1024, 8192, 0.25


@dataclass(frozen=True)
class Work:
    """The work of some forward and backward passes.

    tokens: number of attended tokens. padding: number of padding tokens. flops: model FLOPs,
    forward and backward.
    """

    tokens: float = 0.0
    padding: float = 0.0
    flops: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    @property
    def padding_share(self) -> float:
        """The share of padding in all tokens, 0 to 1."""
        return self.padding / max(1.0, self.tokens + self.padding)


def transformer_flops(
    lengths: np.ndarray, hidden: int, layers: int, weights: int, trained: int, *, backward: bool
) -> float:
    """Return the model FLOPs of N rows in L layers.

    lengths: (N,) tokens of each row. hidden: D. layers: L. weights: number of weights in the linear
    layers that each token passes, L (4 D^2 + 2 D F) in BERT. trained: number of those that have a
    gradient. backward: whether to include the backward pass. Forward takes 2 per weight and token;
    backward 2 for the gradient of the input and 2 for that of a trained weight. Attention's
    products take 4 n^2 D per layer and row, three times that with backward.
    """
    tokens, squares = float(lengths.sum()), float((lengths.astype(np.float64) ** 2).sum())
    linear = 2.0 * tokens * (2 * weights + trained if backward else weights)
    return linear + 4.0 * squares * hidden * layers * (3 if backward else 1)


def encoder_flops(model: Any, lengths: np.ndarray, *, backward: bool = True) -> float:
    """Return the model FLOPs of a transformers encoder for rows of (N,) lengths.

    The pooler does not count, because its output is not used. The result is exact for BERT, RoBERTa
    and every model whose layers do not share weights.
    """
    weights, trained = linear_weights(model, but="pooler")
    config = model.config
    size, layers = config.hidden_size, config.num_hidden_layers
    whole = transformer_flops(lengths, size, layers, weights, trained, backward=backward)
    # Every token attends to the trained prefixes too.
    pairs = float(lengths.sum()) * prefix_length(model)
    return whole + 4.0 * pairs * float(size * layers) * (3 if backward else 1)


def linear_weights(model: nn.Module, but: str | None = None) -> tuple[int, int]:
    """Return the number of weights in the linear layers, and the number of those with a gradient.

    but: name of a part of the model whose layers do not count.
    """
    linear = [
        module.weight
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and but not in name.split(".")
    ]
    return sum(w.numel() for w in linear), sum(w.numel() for w in linear if w.requires_grad)


def measured_peak_flops(precision: Precision, device: torch.device) -> float:
    """Return the measured peak FLOPs per second of the device in the chosen number format.

    It is the fastest product of two square matrices with CPU_PRODUCT or CUDA_PRODUCT rows, on this
    process's threads, within RATE_SECONDS: the practical peak, not the manufacturer's. torch's
    random state is not used.
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
    float(product[0, 0])  # waits until a GPU has finished
    return time.perf_counter() - started
