"""How an encoder attends: to padded rows, or to packed ones.

Packed, the tokens of a batch stand one after the other in one row, without padding, and each
attends to those of its own sentence alone. torch's jagged attention does that, with gradient and
with the dropout of the padded way: on a GPU in bf16 by its flash kernel for unequal lengths, on a
CPU by padding inside the attention alone, which is right but slower than padded rows.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cotbert_core.encoder.dropout import dropout as drop_out
from cotbert_core.errors import UserError
from cotbert_core.settings import Attention

PLAIN, UNPADDED = "plain", "unpadded"
# Families whose layers hand what they do not know themselves on to the attention.
OWN = ("bert", "roberta", "xlm-roberta")


def opened_with(attention: Attention, device: torch.device) -> str:
    """What transformers is asked for when it opens an encoder."""
    if attention in ("eager", "sdpa"):
        return attention
    return "sdpa" if device.type == "cuda" else "eager"


def attend(model: Any, name: str, attention: Attention) -> str:
    """Let the opened encoder NAME attend as asked; return transformers' name for the way it does.

    auto: on a CPU `plain`, where the family can; else what it was opened with. On rows of 30 to 50
    tokens transformers' `eager` is 12-20 % faster than `sdpa` there, and `plain` takes 0.87 of its
    time in a training step in bf16. UserError for a family that cannot.
    """
    family = model.config.model_type
    if attention in (PLAIN, UNPADDED) and family not in OWN:
        raise UserError(
            f"attention is {attention!r} and encoder {name!r} is of the family {family!r}: only "
            f"{', '.join(OWN)} have it; leave attention=auto"
        )
    own = PLAIN if attention == "auto" and model.device.type == "cpu" else attention
    if own not in (PLAIN, UNPADDED) or family not in OWN:
        return opened_with(attention, model.device)
    _register()
    model.set_attn_implementation(own)
    return own


def _register() -> None:
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, eager_mask, sdpa_mask

    AttentionInterface.register(PLAIN, plain_attention)
    AttentionMaskInterface.register(PLAIN, eager_mask)
    AttentionInterface.register(UNPADDED, unpadded_attention)
    AttentionMaskInterface.register(UNPADDED, sdpa_mask)


def plain_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    dropout: float = 0.0,
    **others: Any,
) -> tuple[Tensor, Tensor]:
    """(N, heads, L, d) -> (N, L, heads, d), and the weights (N, heads, L, L) it mixed by.

    In one number format: under autocast transformers' own takes the weights from bf16 to fp32, and
    back for the product with the values, which rounds them all the same.
    """
    scores = torch.matmul(query * scaling, key.transpose(2, 3))
    if attention_mask is not None:
        scores = scores + attention_mask.to(scores.dtype)
    with torch.autocast(query.device.type, enabled=False):
        weights = drop_out(torch.softmax(scores, dim=-1), dropout)
    return torch.matmul(weights, value).transpose(1, 2).contiguous(), weights


def unpadded_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    offsets: Tensor | None = None,
    longest: int | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """(1, heads, T, d) of T packed tokens -> (1, T, heads, d).

    offsets: (N + 1,) where each of the N rows begins, and T; longest: tokens of the longest row.
    Without offsets the rows are padded ones, (N, heads, L, d), and attention_mask is theirs.
    """
    if offsets is None:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        options = {"scaling": scaling, "dropout": dropout, **others}
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    q, k, v = (_rows(part, offsets, longest) for part in (query, key, value))
    mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, scale=scaling)
    return mixed.transpose(1, 2).contiguous().values()[None], None


def _rows(packed: Tensor, offsets: Tensor, longest: int | None) -> Tensor:
    """(1, heads, T, d) -> N rows of (heads, their length, d)."""
    tokens = packed[0].transpose(0, 1).contiguous()
    rows = torch.nested.nested_tensor_from_jagged(tokens, offsets, min_seqlen=1, max_seqlen=longest)
    return rows.transpose(1, 2)
