"""DenoSent's decoder, which reconstructs a noisy sentence from one sentence vector.

It is a stack of post-norm Transformer decoder layers like torch's, without a causal mask, and with
a single vector as memory. Attention over one key always has weight 1, so cross-attention is W_o W_v
z + b for every token and needs neither queries nor keys. In training, dropout still applies to that
weight, separately for each token and head. Letters: b rows, L tokens, D size, h heads.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cotbert_core.encoder.dropout import Dropout, dropout
from cotbert_core.errors import UserError


class SelfAttention(nn.Module):
    """Self-attention (b, L, D) -> (b, L, D) over the attended tokens (b, L)."""

    def __init__(self, size: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.inward = nn.Linear(size, 3 * size)
        self.outward = nn.Linear(size, size)

    def forward(self, tokens: Tensor, attended: Tensor) -> Tensor:
        rows, length, size = tokens.shape
        split = self.inward(tokens).view(rows, length, 3, self.heads, size // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=attended[:, None, None, :],
            dropout_p=self.dropout if self.training else 0.0,
        )
        out: Tensor = self.outward(mixed.transpose(1, 2).reshape(rows, length, size))
        return out


class MemoryAttention(nn.Module):
    """Cross-attention to a memory of one vector: (b, D) -> (b, L, D) or (b, 1, D)."""

    def __init__(self, size: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.value = nn.Linear(size, size)
        self.outward = nn.Linear(size, size)

    def forward(self, memory: Tensor, length: int) -> Tensor:
        value = self.value(memory)
        if not self.training or self.dropout == 0:
            out: Tensor = self.outward(value).unsqueeze(1)
            return out
        rows, size = value.shape
        by_head = value.view(rows, self.heads, size // self.heads)
        weight = self.outward.weight.view(size, self.heads, size // self.heads)
        shares = torch.einsum("bhd,ohd->bho", by_head, weight)
        kept = dropout(shares.new_ones(rows, length, self.heads), self.dropout)
        return torch.einsum("blh,bho->blo", kept, shares) + self.outward.bias


class DecoderLayer(nn.Module):
    """Self-attention, memory attention and feed-forward, each with a residual and layer norm."""

    def __init__(self, size: int, heads: int, feed_forward: int, dropout: float) -> None:
        super().__init__()
        self.attention = SelfAttention(size, heads, dropout)
        self.memory = MemoryAttention(size, heads, dropout)
        self.inward = nn.Linear(size, feed_forward)
        self.outward = nn.Linear(feed_forward, size)
        self.norms = nn.ModuleList([nn.LayerNorm(size) for _ in range(3)])
        self.dropout = Dropout(dropout)

    def forward(self, tokens: Tensor, attended: Tensor, memory: Tensor) -> Tensor:
        first, second, third = self.norms
        tokens = first(tokens + self.dropout(self.attention(tokens, attended)))
        read = self.memory(memory, tokens.shape[1]).expand_as(tokens)
        tokens = second(tokens + self.dropout(read))
        inner = self.dropout(torch.relu(self.inward(tokens)))
        out: Tensor = third(tokens + self.dropout(self.outward(inner)))
        return out


class Decoder(nn.Module):
    """A stack of decoder layers. Raises UserError unless `heads` divides `size`.

    tokens: (b, L, D) noisy embeddings. attended: (b, L) bool. memory: (b, D). Returns (b, L, D).
    """

    def __init__(
        self, size: int, layers: int, heads: int, feed_forward: int, dropout: float
    ) -> None:
        super().__init__()
        if size % heads:
            raise UserError(
                f"method.heads is {heads}: it must divide the encoder's hidden size, {size}"
            )
        self.layers = nn.ModuleList(
            [DecoderLayer(size, heads, feed_forward, dropout) for _ in range(layers)]
        )
        self.apply(_begin)

    def forward(self, tokens: Tensor, attended: Tensor, memory: Tensor) -> Tensor:
        for layer in self.layers:
            tokens = layer(tokens, attended, memory)
        return tokens


def _begin(module: nn.Module) -> None:
    """Initialise a module as the released code does: weights N(0, 0.02), biases 0.

    There the input projections of attention are one matrix with Xavier initialisation.
    """
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=0.02)
        nn.init.zeros_(module.bias)
    elif isinstance(module, SelfAttention):
        nn.init.xavier_uniform_(module.inward.weight)
    elif isinstance(module, MemoryAttention):
        # One of the three projections: uniform within sqrt(6 / (D + 3 D)).
        nn.init.xavier_uniform_(module.value.weight, gain=0.5**0.5)
