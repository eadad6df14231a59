"""Attention implementations of an encoder, for padded rows and for packed rows.

In a packed batch the tokens of all sentences form one row, without padding, and each token attends
only to its own sentence. torch's jagged attention does this with gradients and with the same
dropout as for padded rows: on a GPU in bf16 by the variable-length flash kernel, on a CPU by
padding inside the attention, which is correct but slower than padded rows. Without dropout and
gradients the rows are padded here instead, in the attention alone.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from cotbert_core.encoder.dropout import dropout as drop_out
from cotbert_core.errors import UserError
from cotbert_core.settings import Attention

PLAIN, UNPADDED = "plain", "unpadded"
PREFIXED = "prefixed-"
# Families whose layers pass unknown keyword arguments on to the attention function.
FAMILIES = ("bert", "roberta", "xlm-roberta")
# The attention kernels that `sdpa` may use on a GPU: all but cuDNN's, which torch 2.11 prefers on a
# Hopper GPU. cuDNN makes a new plan for each shape of a batch: with it, BERT-base took 5.1 s on an
# H200 for the first 8,192 Wikipedia lines, without it 0.2 s. Later it was no faster.
KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def initial_attention(attention: Attention, device: torch.device) -> str | None:
    """Return the attention implementation with which transformers loads an encoder.

    None: transformers' own choice, `sdpa` for the families that have it (not MPNet and DeBERTa).
    """
    if attention in ("eager", "sdpa"):
        return attention
    return None if device.type == "cuda" else "eager"


def set_attention(model: Any, name: str, attention: Attention) -> str:
    """Set the attention implementation of the loaded encoder NAME; return transformers' name of it.

    auto: `plain` on a CPU if the family supports it, else the initial one. On rows of 30 to 50
    tokens transformers' `eager` is 12-20 % faster than `sdpa` there, and `plain` takes 0.87 of the
    time of `eager` in a training step in bf16. Raises UserError for a family without support.
    """
    family = model.config.model_type
    if attention in (PLAIN, UNPADDED) and family not in FAMILIES:
        raise UserError(
            f"attention is {attention!r} and encoder {name!r} is of the family {family!r}: only "
            f"the families {', '.join(FAMILIES)} support it; set attention=auto"
        )
    chosen = PLAIN if attention == "auto" and model.device.type == "cpu" else attention
    if chosen not in (PLAIN, UNPADDED) or family not in FAMILIES:
        return attention_of(model)
    _register()
    model.set_attn_implementation(chosen)
    return chosen


def without_cudnn(device: torch.device) -> AbstractContextManager[None]:
    """Return a context in which `sdpa` on a GPU uses the KERNELS; elsewhere it changes nothing."""
    return sdpa_kernel(KERNELS) if device.type == "cuda" else nullcontext()


def accept_bf16(model: Any) -> None:
    """Let DeBERTa (v1) run under autocast.

    transformers adds its biases in fp32 to queries in bf16, and then masks scores in bf16 with the
    lowest number of fp32, which torch refuses.
    """
    if model.config.model_type == "deberta":
        for layer in model.encoder.layer:
            attention = layer.attention.self
            attention.transpose_for_scores = partial(_by_heads, attention.num_attention_heads)


def _by_heads(heads: int, values: Tensor) -> Tensor:
    """Return values (N, L, D) as (N, heads, L, d), in autocast's number format."""
    device = values.device.type
    if torch.is_autocast_enabled(device):
        values = values.to(torch.get_autocast_dtype(device))
    return values.view(*values.shape[:-1], heads, -1).permute(0, 2, 1, 3)


def attention_of(model: Any) -> str:
    """Return transformers' name of a model's attention implementation."""
    # private: set_attn_implementation is public, but there is no public getter
    return str(model.config._attn_implementation)  # noqa: SLF001


def register_again(model: Any) -> None:
    """Make a model's attention known in a process that did not load the model, but unpickled it."""
    name = attention_of(model)
    if name in (PLAIN, UNPADDED):
        _register()
    elif name.startswith(PREFIXED):
        _register_prefixed(fused=name.endswith("sdpa"))


def _register() -> None:
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, eager_mask, sdpa_mask

    AttentionInterface.register(PLAIN, plain_attention)
    AttentionMaskInterface.register(PLAIN, eager_mask)
    AttentionInterface.register(UNPADDED, unpadded_attention)
    AttentionMaskInterface.register(UNPADDED, sdpa_mask)


def attend_to_prefixes(model: Any) -> None:
    """Let every layer of a model that has a prefix attend to it (cotbert_core.encoder.prefixes)."""
    model.set_attn_implementation(_register_prefixed(fused=attention_of(model) == "sdpa"))


def _register_prefixed(fused: bool) -> str:
    """Return the name of the attention that reads prefixes."""
    from transformers import AttentionInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import AttentionMaskInterface, eager_mask, sdpa_mask

    name = f"{PREFIXED}{'sdpa' if fused else PLAIN}"
    AttentionInterface.register(
        name, _with_prefix(sdpa_attention_forward if fused else plain_attention)
    )
    AttentionMaskInterface.register(name, sdpa_mask if fused else eager_mask)
    return name


def _with_prefix(attention: Callable[..., Any]) -> Callable[..., Any]:
    """Return an attention function in which a layer's prefix precedes the keys and values."""

    def prefixed(
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        **options: Any,
    ) -> Any:
        prefix: Any = getattr(module, "prefix", None)
        if prefix is None:
            return attention(module, query, key, value, attention_mask, **options)
        keys, values = prefix(len(query))
        key = torch.cat([keys.to(key.dtype), key], dim=2)
        value = torch.cat([values.to(value.dtype), value], dim=2)
        if attention_mask is not None:
            seen = attention_mask.dtype == torch.bool  # True, or 0 in an additive mask
            attention_mask = F.pad(attention_mask, (keys.shape[2], 0), value=seen)
        return attention(module, query, key, value, attention_mask, **options)

    return prefixed


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
    """Return the attended values (N, L, heads, d) and the weights (N, heads, L, L).

    query, key, value: (N, heads, L, d). The weights keep their number format: under autocast
    transformers' own function always converts them from bf16 to fp32 and back, although the product
    with the values rounds them anyway. Here that is done only where it is faster (`_softmax`).
    """
    scores = torch.matmul(query * scaling, key.transpose(2, 3))
    if attention_mask is not None:
        scores = scores + attention_mask.to(scores.dtype)
    with torch.autocast(query.device.type, enabled=False):
        weights = drop_out(_softmax(scores), dropout)
    return torch.matmul(weights, value).transpose(1, 2).contiguous(), weights


def _softmax(scores: Tensor) -> Tensor:
    """Return the softmax of the last dimension, in the number format of the scores.

    On a CPU torch takes rows of bf16 32 numbers at a time, of fp32 16, and the rest of each row one
    by one. Where the rest is long, fp32 with its two conversions takes 0.27 of the time (27 numbers
    in a row; 0.35 with 47), and 0.24 with the gradient. `encode()` takes 3 % less time for
    sentences, and 5 % less for 32 at a time (2 cores of an AMD EPYC, torch 2.13).
    """
    width, on_cpu = scores.shape[-1], scores.device.type == "cpu"
    if on_cpu and scores.dtype == torch.bfloat16 and width >= 16 and width % 32 >= 8:
        return torch.softmax(scores, dim=-1, dtype=torch.float32).to(scores.dtype)
    return torch.softmax(scores, dim=-1)


def unpadded_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    dropout: float = 0.0,
    offsets: Tensor | None = None,
    longest: int | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Return the attended values (1, T, heads, d) of T packed tokens.

    query, key, value: (1, heads, T, d). offsets: (N + 1,) the start of each of the N rows, and T.
    longest: number of tokens of the longest row. Without offsets the rows are padded,
    (N, heads, L, d), and attention_mask belongs to them.
    """
    if offsets is None:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        options = {"scaling": scaling, "dropout": dropout, **others}
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    if query.device.type == "cpu" and dropout == 0 and not torch.is_grad_enabled():
        return _padded_inside(module, query, key, value, offsets, scaling)
    q, k, v = (_rows(part, offsets, longest) for part in (query, key, value))
    mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, scale=scaling)
    return mixed.transpose(1, 2).contiguous().values()[None], None


def _padded_inside(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    offsets: Tensor,
    scaling: float,
) -> tuple[Tensor, None]:
    """Return what `unpadded_attention` does, by `plain_attention` on the padded rows (N, L)."""
    lengths = offsets.diff()
    if len(lengths) == 1:
        return plain_attention(module, query, key, value, None, scaling=scaling)[0], None
    columns = torch.arange(int(lengths.max()), device="cpu")
    seen = columns < lengths[:, None]
    places = torch.where(seen, offsets[:-1, None] + columns, 0).flatten()
    mask = torch.zeros(seen.shape, device="cpu").masked_fill_(~seen, -torch.inf)[:, None, None]

    def padded(packed: Tensor) -> Tensor:
        rows = packed[0].transpose(0, 1).index_select(0, places)
        return rows.view(*seen.shape, *rows.shape[1:]).transpose(1, 2)

    parts = padded(query), padded(key), padded(value)
    mixed, _ = plain_attention(module, *parts, mask, scaling=scaling)
    return mixed.flatten(0, 1).index_select(0, seen.flatten().nonzero().squeeze(1))[None], None


def _rows(packed: Tensor, offsets: Tensor, longest: int | None) -> Tensor:
    """Return packed values (1, heads, T, d) as N jagged rows (heads, length, d)."""
    tokens = packed[0].transpose(0, 1).contiguous()
    rows = torch.nested.nested_tensor_from_jagged(tokens, offsets, min_seqlen=1, max_seqlen=longest)
    return rows.transpose(1, 2)
