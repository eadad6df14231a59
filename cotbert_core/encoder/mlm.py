"""The head of a masked language model, from hidden states to token scores.

Letters: D hidden size, V vocabulary size. BERT and RoBERTa have the same layers under different
names: dense, activation, layer norm, then a product with the output embeddings.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from cotbert_core.encoder.backbone import Backbone
from cotbert_core.encoder.pretrained import no_loading_report, open_pretrained
from cotbert_core.errors import UserError

# The prefix of the names of the head's weights in each family.
_HEADS = {
    "bert": "cls.predictions",
    "roberta": "lm_head",
    "xlm-roberta": "lm_head",
    "camembert": "lm_head",
}


class MlmHead(nn.Module):
    """A masked-language-model head: (..., D) hidden states -> (..., V) logits.

    fresh: whether the transform's weights are new, not the checkpoint's. Tied output weights are
    the same Parameter as the encoder's word embeddings.
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
        """The output embeddings, (V, D)."""
        return cast(nn.Parameter, self.decoder.weight)

    def forward(self, hidden: Tensor) -> Tensor:
        return cast(Tensor, self.decoder(self.norm(self.activation(self.dense(hidden)))))


def mlm_head(backbone: Backbone) -> MlmHead:
    """Return the checkpoint's own head if it has one, else a fresh one (see `fresh`)."""
    return _checkpoint_head(backbone) or fresh_mlm_head(backbone)


def load_mlm_head(backbone: Backbone) -> MlmHead:
    """Return the checkpoint's own head.

    Raises UserError if it has none: transformers would initialise one at random.
    """
    head = _checkpoint_head(backbone)
    if head is None:
        raise UserError(
            f"the checkpoint of encoder {backbone.name!r} has no masked-language-model head, which "
            "is needed: use an encoder that has one, such as bert-base-uncased or roberta-base"
        )
    return head


def checkpoint_transform(backbone: Backbone) -> dict[str, Tensor] | None:
    """Return the weights `dense` and `norm` of the checkpoint's own head.

    Returns None if it has no head, or if its family is not supported.
    """
    supported = backbone.model.config.model_type in _HEADS
    head = _checkpoint_head(backbone) if supported else None
    if head is None:
        return None
    weights = head.state_dict()
    return {name: weights[name] for name in weights if name.startswith(("dense.", "norm."))}


def new_dense(size: int) -> nn.Linear:
    """Return a linear layer initialised as in the papers' code: weights N(0, 0.02), biases 0."""
    layer = nn.Linear(size, size)
    nn.init.normal_(layer.weight, std=0.02)
    nn.init.zeros_(layer.bias)
    return layer


def fresh_mlm_head(backbone: Backbone) -> MlmHead:
    """Return a head with a new transform and the encoder's word embeddings as the output layer.

    Weights are N(0, 0.02) and biases 0.
    """
    from transformers.activations import ACT2FN

    _prefix(backbone)
    config = backbone.model.config
    size = backbone.hidden_size
    dense = new_dense(size)
    words = backbone.model.get_input_embeddings().weight
    decoder = nn.Linear(size, len(words), device="meta")
    decoder.weight = words
    decoder.bias = nn.Parameter(torch.zeros(len(words)))
    norm = nn.LayerNorm(size, eps=config.layer_norm_eps)
    head = MlmHead(dense, ACT2FN[config.hidden_act], norm, decoder, fresh=True)
    return head.to(backbone.device)


def _checkpoint_head(backbone: Backbone) -> MlmHead | None:
    """Return the head in the checkpoint; None if any of its weights is missing."""
    from transformers import AutoModelForMaskedLM

    prefix = _prefix(backbone)
    with no_loading_report():
        model, info = open_pretrained(
            AutoModelForMaskedLM, backbone.name, dtype=torch.float32, output_loading_info=True
        )
    if any(key.startswith(prefix) for key in info["missing_keys"]):
        return None
    found = model.get_submodule(prefix)
    decoder = found.decoder
    if decoder.weight is model.get_input_embeddings().weight:
        decoder.weight = backbone.model.get_input_embeddings().weight
    if prefix == "lm_head":
        head = MlmHead(found.dense, nn.functional.gelu, found.layer_norm, decoder, fresh=False)
    else:
        part = found.transform
        head = MlmHead(part.dense, part.transform_act_fn, part.LayerNorm, decoder, fresh=False)
    return head.to(backbone.device)


def with_mlm_head(model: Any, head: MlmHead) -> Any:
    """Return a masked language model of transformers with this encoder and a copy of this head."""
    from transformers import AutoModelForMaskedLM

    tied = torch.equal(head.weight.cpu(), model.get_input_embeddings().weight.cpu())
    model.config.tie_word_embeddings = tied
    whole = AutoModelForMaskedLM.from_config(model.config)  # type: ignore[no-untyped-call]
    setattr(whole, whole.base_model_prefix, model)
    prefix = _HEADS[model.config.model_type]
    found = whole.get_submodule(prefix)
    weights = head.state_dict()
    bert = prefix != "lm_head"
    names = ("transform.dense", "transform.LayerNorm") if bert else ("dense", "layer_norm")
    for name, own in zip(names, ("dense", "norm"), strict=True):
        parts = {key: weights[f"{own}.{key}"] for key in ("weight", "bias")}
        found.get_submodule(name).load_state_dict(parts)
    with torch.no_grad():
        found.decoder.weight.copy_(head.weight)
        found.decoder.bias.copy_(head.decoder.bias)
        found.bias.copy_(head.decoder.bias)
    whole.tie_weights()
    return whole


def _prefix(backbone: Backbone) -> str:
    family = backbone.model.config.model_type
    if family not in _HEADS:
        raise UserError(
            f"encoder {backbone.name!r} is of the family {family!r}, whose masked-language-model "
            f"head is not supported: use an encoder of the families {', '.join(_HEADS)}"
        )
    return _HEADS[family]
