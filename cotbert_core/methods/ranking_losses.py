"""Losses on the order of similar sentences (RankCSE, Liu et al., ACL 2023): pure functions.

Letters: b rows on this worker, B sentences of the global batch. Similarities are cosines (b, B) of
each row with all sentences. Each worker returns the mean over its own rows.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def ranking_consistency(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """Return the scalar mean Jensen-Shannon divergence of two views' similarities (section 4.2).

    first, second: (b, B). Each row becomes a distribution by softmax at the temperature; the
    divergence is in nats, 0 for equal rows and at most log 2.
    """
    p, q = (F.log_softmax(view / temperature, dim=1) for view in (first, second))
    middle = torch.logaddexp(p, q) - math.log(2)
    return (_divergence(p, middle) + _divergence(q, middle)) / 2


def list_net(
    student: Tensor, teacher: Tensor, temperature: float, teacher_temperature: float
) -> Tensor:
    """Return the scalar mean cross-entropy of the teacher's softmax and the student's (ListNet).

    student, teacher: (b, B) similarities.
    """
    wanted = F.softmax(teacher / teacher_temperature, dim=1)
    return F.cross_entropy(student / temperature, wanted)


def list_mle(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Return the scalar mean of -log P(the teacher's order | the student's similarities) / B.

    P is the Plackett-Luce model (ListMLE): the product over ranks of the softmax of the sentence at
    that rank over the remaining ones. student, teacher: (b, B) similarities.
    """
    ranked = torch.gather(student / temperature, 1, teacher.argsort(dim=1, descending=True))
    left = ranked.flip(1).logcumsumexp(dim=1).flip(1)
    return (left - ranked).mean()


def _divergence(p: Tensor, q: Tensor) -> Tensor:
    """Return the scalar mean Kullback-Leibler divergence of rows (b, B) of log-probabilities."""
    return F.kl_div(q, p, reduction="batchmean", log_target=True)
