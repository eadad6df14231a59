"""Small layers after the pooling. Most are dropped after training; some methods keep them.

Letters: N rows, D hidden size. A head also defines how a template's bias b is subtracted from the
mask vector h: the papers' code subtracts it before dense and tanh, head(h - b), but after BERT's
prediction transform, head(h) - head(b).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from cotbert_core.encoder.backbone import Backbone
from cotbert_core.encoder.locations import saved_part
from cotbert_core.encoder.mlm import checkpoint_transform, new_dense
from cotbert_core.errors import UserError

HEAD_FILE = "head.safetensors"


class TanhHead(nn.Module):
    """A dense layer and tanh: (N, D) -> (N, D)."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.dense = new_dense(config.hidden_size)

    def forward(self, vectors: Tensor) -> Tensor:
        return torch.tanh(self.dense(vectors))

    def denoised(self, vectors: Tensor, bias: Tensor) -> Tensor:
        """Return the head's output (N, D) with the bias (N, D) subtracted."""
        return self.forward(vectors - bias)


class TransformHead(nn.Module):
    """A dense layer, the encoder's activation and layer norm, as in BERT's prediction head.

    Maps (N, D) to (N, D). fresh: whether the weights are new, not taken from a checkpoint's
    masked-language-model head.
    """

    fresh = True

    def __init__(self, config: Any) -> None:
        from transformers.activations import ACT2FN

        super().__init__()
        self.dense = new_dense(config.hidden_size)
        self.activation = ACT2FN[_first_of(config, "hidden_act", "activation", "hidden_activation")]
        # DistilBERT's config has no epsilon.
        epsilon = _first_of(config, "layer_norm_eps", "norm_eps", default=1e-12)
        self.norm = nn.LayerNorm(config.hidden_size, eps=epsilon)

    def forward(self, vectors: Tensor) -> Tensor:
        out: Tensor = self.norm(self.activation(self.dense(vectors)))
        return out

    def denoised(self, vectors: Tensor, bias: Tensor) -> Tensor:
        """Return the head's output (N, D) with the bias (N, D) subtracted."""
        return self.forward(vectors) - self.forward(bias)


Head = TanhHead | TransformHead
HEADS: dict[str, type[Head]] = {"tanh": TanhHead, "transform": TransformHead}


def _first_of(config: Any, *names: str, default: Any = None) -> Any:
    """Return the value that a config has under the first of these names, which differ by family."""
    return next((getattr(config, name) for name in names if hasattr(config, name)), default)


def new_head(name: str, backbone: Backbone) -> Head:
    """Return a new head for this encoder by its name in HEADS.

    `transform` starts from the weights of the checkpoint's masked-language-model head, as in the
    released code. Without such a head, and for `tanh`, weights are N(0, 0.02) and biases 0.
    """
    head = HEADS[name](backbone.model.config)
    if isinstance(head, TransformHead):
        own = checkpoint_transform(backbone)
        head.fresh = own is None
        if own is not None:
            head.load_state_dict(own)
    return head


def head_notes(head: Head | None, backbone: Backbone) -> list[str]:
    """Return notes for the user about the initial weights of this head."""
    if not isinstance(head, TransformHead) or not head.fresh:
        return []
    return [
        f"encoder {backbone.name!r} has no masked-language-model head: the transform head starts "
        "with new weights, N(0, 0.02)"
    ]


def apply_head(vectors: Tensor, bias: Tensor | None = None, head: Head | None = None) -> Tensor:
    """Return (N, D) vectors minus their template's bias (N, D), passed through the head if any."""
    if head is None:
        return vectors if bias is None else vectors - bias
    return head(vectors) if bias is None else head.denoised(vectors, bias)


def load_head(name: str, encoder: str, backbone: Backbone) -> Head:
    """Return the head that is saved in an encoder's folder; UserError if it is missing."""
    from safetensors.torch import load_file

    path = saved_part(encoder, HEAD_FILE)
    if not path.is_file():
        raise UserError(
            f"encoder {encoder!r} needs its {name} head and the folder has no {HEAD_FILE}: copy "
            "the whole folder again"
        )
    head = HEADS[name](backbone.model.config)
    try:
        head.load_state_dict(load_file(str(path)))
    except Exception as error:  # safetensors and torch raise errors of their own types
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"{str(path)!r} is not the {name} head of encoder {encoder!r} ({reason}): copy the "
            "whole folder again"
        ) from error
    return head.to(backbone.device).eval()
