"""Small layers behind the readout. Most are dropped after training; some methods keep theirs.

Letters: N rows, D hidden size. A head also says how a template's bias b is taken off the mask
vector h: the papers' code does it before dense and tanh, head(h - b), but behind BERT's
prediction transform, head(h) - head(b).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from cotbert_core.encoder.backbone import Backbone, saved_part
from cotbert_core.encoder.mlm import checkpoint_transform
from cotbert_core.errors import UserError

HEAD_FILE = "head.safetensors"


class TanhHead(nn.Module):
    """(N, D) -> (N, D): dense and tanh."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.dense = _dense(config.hidden_size)

    def forward(self, vectors: Tensor) -> Tensor:
        return torch.tanh(self.dense(vectors))

    def denoised(self, vectors: Tensor, bias: Tensor) -> Tensor:
        """Two of (N, D) -> (N, D)."""
        return self.forward(vectors - bias)


class TransformHead(nn.Module):
    """(N, D) -> (N, D): dense, the encoder's activation, layer norm (BERT's prediction head).

    fresh: the weights are new, not those of a checkpoint's masked-language-model head.
    """

    fresh = True

    def __init__(self, config: Any) -> None:
        from transformers.activations import ACT2FN

        super().__init__()
        self.dense = _dense(config.hidden_size)
        self.activation = ACT2FN[config.hidden_act]
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, vectors: Tensor) -> Tensor:
        out: Tensor = self.norm(self.activation(self.dense(vectors)))
        return out

    def denoised(self, vectors: Tensor, bias: Tensor) -> Tensor:
        """Two of (N, D) -> (N, D)."""
        return self.forward(vectors) - self.forward(bias)


Head = TanhHead | TransformHead
HEADS: dict[str, type[Head]] = {"tanh": TanhHead, "transform": TransformHead}


def _dense(size: int) -> nn.Linear:
    """As the papers' code begins: weights N(0, 0.02), bias 0."""
    layer = nn.Linear(size, size)
    nn.init.normal_(layer.weight, std=0.02)
    nn.init.zeros_(layer.bias)
    return layer


def new_head(name: str, backbone: Backbone) -> Head:
    """A head to be trained on this encoder, by its name in HEADS.

    `transform` begins as that of the checkpoint's masked-language-model head, as released; where
    the checkpoint has none, and for `tanh`, weights are N(0, 0.02) and biases 0.
    """
    head = HEADS[name](backbone.model.config)
    if isinstance(head, TransformHead):
        own = checkpoint_transform(backbone)
        head.fresh = own is None
        if own is not None:
            head.load_state_dict(own)
    return head


def head_notes(head: Head | None, backbone: Backbone) -> list[str]:
    """What a user should know of how this head begins."""
    if not isinstance(head, TransformHead) or not head.fresh:
        return []
    return [
        f"encoder {backbone.name!r} has no masked-language-model head: the transform head begins "
        "with new weights, N(0, 0.02)"
    ]


def read_out(vectors: Tensor, bias: Tensor | None = None, head: Head | None = None) -> Tensor:
    """(N, D) vectors with their template's bias (N, D) taken off, behind the head if any."""
    if head is None:
        return vectors if bias is None else vectors - bias
    return head(vectors) if bias is None else head.denoised(vectors, bias)


def load_head(name: str, encoder: str, backbone: Backbone) -> Head:
    """The head that was saved in an encoder's folder; UserError when it is not there."""
    from safetensors.torch import load_file

    path = saved_part(encoder, HEAD_FILE)
    if not path.is_file():
        raise UserError(
            f"encoder {encoder!r} is read through a {name} head and its folder has no {HEAD_FILE}: "
            "copy the folder again, whole"
        )
    head = HEADS[name](backbone.model.config)
    try:
        head.load_state_dict(load_file(str(path)))
    except Exception as error:  # safetensors and torch have errors of their own
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"{str(path)!r} does not hold the {name} head of encoder {encoder!r} ({reason}): copy "
            "the folder again, whole"
        ) from error
    return head.to(backbone.device).eval()
