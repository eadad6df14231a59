"""PCL's losses on a sentence's group of positives (Wu et al., EMNLP 2022): pure functions.

Letters: b rows on this worker, B sentences of the global batch, P positives of a sentence, D hidden
size. Each worker returns the mean over its own rows. The formulas are those of the released code.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from cotbert_core.losses import cosines, paired_cosines


def group_logits(
    sentences: Tensor, positives: Tensor, columns: Tensor, *, temperature: float, first: int = 0
) -> Tensor:
    """Return (b, P + B - 1) cosines / temperature: to own positives, then to other sentences.

    sentences: (b, D). positives: (b, P, D). columns: (B, D) all sentences. first: the column of
    row 0's sentence; each row leaves out its own column.
    """
    others = cosines(sentences, columns)
    own = torch.arange(first, first + len(others), device=others.device)[:, None]
    places = torch.arange(others.shape[1] - 1, device=others.device)
    others = others.gather(1, places + (places >= own))
    return torch.cat([paired_cosines(sentences[:, None], positives), others], dim=1) / temperature


def group_loss(logits: Tensor, positives: int) -> Tensor:
    """Return the scalar mean binary cross-entropy: 1 for a positive, 0 for another sentence.

    As in the released code, it is the sigmoid of each row's softmax. logits: (b, P + B - 1), those
    of the P positives first.
    """
    shares = F.softmax(logits, dim=1)
    wanted = torch.zeros_like(shares)
    wanted[:, :positives] = 1
    return F.binary_cross_entropy_with_logits(shares, wanted)


def divergence(own: Tensor, peer: Tensor) -> Tensor:
    """Return the scalar mean over all entries of q log(q / p): p of own, q of peer logits.

    own, peer: (b, P + B - 1); both get a gradient. A row's sum is its Kullback-Leibler divergence,
    but the released code also averages over the entries of a row.
    """
    p, q = F.log_softmax(own, dim=1), F.log_softmax(peer, dim=1)
    return F.kl_div(p, q, reduction="none", log_target=True).mean()
