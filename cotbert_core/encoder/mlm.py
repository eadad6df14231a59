"""The head of a masked language model on top of an encoder: hidden states to token scores.

Letters: D hidden size, V vocabulary size. dense, activation, layer norm, then a product with the
output embeddings: in BERT and RoBERTa alike, under different names.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn

from cotbert_core.encoder.backbone import Backbone, open_pretrained
from cotbert_core.errors import UserError

# Where each family keeps its head; the names of all its weights start so.
_HEADS = {
    "bert": "cls.predictions",
    "roberta": "lm_head",
    "xlm-roberta": "lm_head",
    "camembert": "lm_head",
}
WEIGHT_STD = 0.02


class MlmHead(nn.Module):
    """(..., D) hidden states -> (..., V) logits.

    fresh: the transform's weights are new, not the checkpoint's. Where the output weights are
    tied they are the encoder's word embeddings themselves, the same Parameter.
    """

    def __init__(
        self, dense: nn.Linear, activation: Any, norm: nn.LayerNorm, decoder: nn.Linear, fresh: bool
    ) -> None:
        super().__init__()
        self.dense, self.norm, self.decoder = dense, norm, decoder
        self.activation = activation
        self.fresh = fresh

    @property
    def weight(self) -> nn.Parameter:
        """(V, D) output embeddings."""
        return cast(nn.Parameter, self.decoder.weight)

    def forward(self, hidden: Tensor) -> Tensor:
        return cast(Tensor, self.decoder(self.norm(self.activation(self.dense(hidden)))))


def mlm_head(backbone: Backbone) -> MlmHead:
    """The checkpoint's own head if it has one, else a fresh one (`fresh` says which)."""
    return _checkpoint_head(backbone) or fresh_mlm_head(backbone)


def load_mlm_head(backbone: Backbone) -> MlmHead:
    """The checkpoint's own head.

    Raises UserError when it has none: transformers would fill it with random numbers.
    """
    head = _checkpoint_head(backbone)
    if head is None:
        raise UserError(
            f"the masked-language-model head of encoder {backbone.name!r} is needed and its "
            "checkpoint has none: use one that has, such as bert-base-uncased or roberta-base"
        )
    return head


def checkpoint_transform(backbone: Backbone) -> dict[str, Tensor] | None:
    """The checkpoint's weights between hidden states and output embeddings: `dense` and `norm`.

    None when it has no head, or is of a family whose head is not known.
    """
    known = backbone.model.config.model_type in _HEADS
    head = _checkpoint_head(backbone) if known else None
    if head is None:
        return None
    weights = head.state_dict()
    return {name: weights[name] for name in weights if name.startswith(("dense.", "norm."))}


def fresh_mlm_head(backbone: Backbone) -> MlmHead:
    """A new transform, weights N(0, 0.02) and biases 0, with the encoder's word embeddings as the
    output layer."""
    from transformers.activations import ACT2FN

    _prefix(backbone)
    config = backbone.model.config
    size = backbone.hidden_size
    dense = nn.Linear(size, size)
    nn.init.normal_(dense.weight, std=WEIGHT_STD)
    nn.init.zeros_(dense.bias)
    words = backbone.model.get_input_embeddings().weight
    decoder = nn.Linear(size, len(words), device="meta")
    decoder.weight = words
    decoder.bias = nn.Parameter(torch.zeros(len(words)))
    norm = nn.LayerNorm(size, eps=config.layer_norm_eps)
    head = MlmHead(dense, ACT2FN[config.hidden_act], norm, decoder, fresh=True)
    return head.to(backbone.device)


def _checkpoint_head(backbone: Backbone) -> MlmHead | None:
    """The head that the checkpoint holds; None when any of its weights is missing there."""
    from transformers import AutoModelForMaskedLM

    prefix = _prefix(backbone)
    with no_loading_report():
        whole, info = open_pretrained(
            AutoModelForMaskedLM, backbone.name, dtype=torch.float32, output_loading_info=True
        )
    if any(key.startswith(prefix) for key in info["missing_keys"]):
        return None
    found = whole.get_submodule(prefix)
    decoder = found.decoder
    if decoder.weight is whole.get_input_embeddings().weight:
        decoder.weight = backbone.model.get_input_embeddings().weight
    if prefix == "lm_head":
        head = MlmHead(found.dense, nn.functional.gelu, found.layer_norm, decoder, fresh=False)
    else:
        part = found.transform
        head = MlmHead(part.dense, part.transform_act_fn, part.LayerNorm, decoder, fresh=False)
    return head.to(backbone.device)


def _prefix(backbone: Backbone) -> str:
    family = backbone.model.config.model_type
    if family not in _HEADS:
        raise UserError(
            f"encoder {backbone.name!r} is of the family {family!r}: a masked-language-model head "
            f"is known for {', '.join(_HEADS)}; use an encoder of one of these"
        )
    return _HEADS[family]


@contextmanager
def no_loading_report() -> Iterator[None]:
    """Without transformers' table of weights that are missing or left over."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        logging.set_verbosity(before)
