"""Beam search for the texts of two blanks that are likeliest for many inputs together.

Letters: K outputs in the beam, L tokens of an output so far, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

# A function from outputs so far (K, L) to the log-probabilities (K, V) of the next token.
Next = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Output:
    """An output of the search.

    tokens: <extra_id_0> A <extra_id_1> B <extra_id_2>. score: their log-probability, the mean over
    the definitions.
    """

    tokens: tuple[int, ...]
    score: float


def joint_beam(
    next_token: Next,
    start: int,
    sentinels: Sequence[int],
    words: Tensor,
    *,
    beam: int,
    max_tokens: int,
    count: int,
    on_step: Callable[[int], None] = lambda step: None,
) -> list[Output]:
    """Return the best outputs of the form `sentinel words sentinel words sentinel`, the best first.

    next_token: log-probabilities of the next token. start: id of the first token. sentinels: ids of
    the three sentinels. words: (V,) bool, tokens that may fill a blank. beam: number of outputs
    that are extended in each step; one that ends counts in that step. max_tokens: maximum number of
    tokens in both blanks. count: maximum number of outputs. on_step: called with the number of each
    step, at most max_tokens + 2. The search stops if no output is left, or if `count` outputs have
    ended with better scores than the best unfinished one, whose score can only fall.
    """
    opened = torch.tensor([[start]], device=words.device)
    scores = next_token(opened)[:, sentinels[0]].double()
    tokens = torch.tensor([[start, sentinels[0]]], device=words.device)
    ended: list[Output] = []
    for step in range(max_tokens + 2):
        allowed = _allowed(tokens, sentinels, words, max_tokens)
        total = scores[:, None] + next_token(tokens).double()
        total = total.masked_fill(~allowed, -torch.inf).flatten()
        scores, places = total.topk(min(beam, int(allowed.sum())))
        rows, chosen = places // len(words), places % len(words)
        tokens = torch.cat([tokens[rows], chosen[:, None]], dim=1)
        over = chosen == sentinels[2]
        for row, score in zip(tokens[over].tolist(), scores[over].tolist(), strict=True):
            ended.append(Output(tuple(row[1:]), score))
        tokens, scores = tokens[~over], scores[~over]
        ended = sorted(ended, key=lambda output: -output.score)[:count]
        on_step(step + 1)
        if not len(tokens) or (len(ended) == count and ended[-1].score >= scores[0]):
            break
    return ended


def _allowed(tokens: Tensor, sentinels: Sequence[int], words: Tensor, max_tokens: int) -> Tensor:
    """Return (K, V) bool: words up to the token limit, and the sentinel that ends the blank."""
    second = (tokens == sentinels[1]).any(dim=1)
    used = tokens.shape[1] - 2 - second.long()
    allowed = words & (used < max_tokens)[:, None]
    allowed[~second, sentinels[1]] = True
    allowed[second, sentinels[2]] = True
    return allowed
