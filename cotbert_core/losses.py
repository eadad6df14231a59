"""Contrastive losses: pure functions of vectors.

Letters: b rows on this worker, B columns of the global batch, D hidden size; one worker has
b = B. a(u, v) = exp(cos(u, v) / temperature); the temperature divides the cosine, and the papers
use 0.05. `first` is the column of the positive of row 0: rank * b if the columns were gathered.
Each worker returns the mean over its own rows; the mean over workers is the global loss.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from cotbert_core.errors import UserError

# A shorter vector has no direction: it is the rounding error of an empty sentence minus its own
# bias (at most 1e-5 in fp32; real vectors have lengths of 1 to 5). Scaling it to unit length would
# make its gradient 1e12.
SMALLEST_NORM = 1e-4
# Above this square of a cosine (0.06 degrees) rounding decides the angle, whose sine is 1e-3 there.
LARGEST_SQUARE = 1 - 1e-6


def info_nce(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor | None = None,
    *,
    temperature: float,
    first: int = 0,
    exclude: Tensor | None = None,
) -> Tensor:
    """Return the scalar mean over i of -log( a(i,i+) / sum_j [ a(i,j+) + a(i,j-) ] ).

    anchor: (b, D); positive, negative: (B, D). Without `negative` there are no a(i,j-) terms
    (InfoNCE, SimCSE eq. 1); with it this is the loss of ConPVP and of supervised SimCSE.
    exclude: see `same_document`.
    """
    others = () if negative is None else ((anchor, negative),)
    return _contrast(anchor, positive, others, temperature, first, exclude)


def extended_info_nce(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    temperature: float,
    first: int = 0,
    exclude: Tensor | None = None,
) -> Tensor:
    """Return the scalar mean over i of -log( a(i,i+) / sum_j [ a(i,j+) + a(i,j-) + a(i+,j-) ] ).

    CoT-BERT eq. 3: the last term pushes the positive of row i away from every hard negative.
    anchor: (b, D); positive, negative: (B, D). exclude: see `same_document`.
    """
    own = positive[first : first + len(anchor)]
    others = ((anchor, negative), (own, negative))
    return _contrast(anchor, positive, others, temperature, first, exclude)


def nt_xent(
    left: Tensor,
    right: Tensor,
    lefts: Tensor,
    rights: Tensor,
    *,
    temperature: float,
    first: int = 0,
) -> Tensor:
    """Return the scalar mean over both views i of -log( a(i,i') / sum_{k != i} a(i,k) ).

    i' is the other view of the same sentence, k every view of the global batch (SimCLR's loss,
    ConSERT eq. 1). left, right: (b, D) first and second views. lefts, rights: (B, D).
    """
    logits = cosines(torch.cat([left, right]), torch.cat([lefts, rights])) / temperature
    own = torch.arange(first, first + len(left), device=left.device)
    itself, other = torch.cat([own, own + len(lefts)]), torch.cat([own + len(lefts), own])
    return F.cross_entropy(logits.scatter(1, itself[:, None], -torch.inf), other)


def arc_con(
    anchor: Tensor, positive: Tensor, *, temperature: float, margin: float, first: int = 0
) -> Tensor:
    """Return the scalar mean over i of -log( p(i) / (p(i) + sum_{j != i} a(i,j+)) ).

    p(i) = exp(cos(angle(i,i+) + margin) / temperature), so that the positive has to be nearer by
    the margin, in radians (the ArcCon loss of ArcCSE). anchor: (b, D); positive: (B, D).
    """
    cosine = cosines(anchor, positive)
    target = torch.arange(first, first + len(anchor), device=anchor.device)
    own = cosine.gather(1, target[:, None])
    sine = (1 - own.square().clamp(max=LARGEST_SQUARE)).sqrt()
    nearer = own * math.cos(margin) - sine * math.sin(margin)
    return F.cross_entropy(cosine.scatter(1, target[:, None], nearer) / temperature, target)


def triplet_hinge(
    anchor: Tensor, nearer: Tensor, farther: Tensor, ordered: Tensor, *, margin: float = 0.0
) -> Tensor:
    """Return the scalar mean over i of max(0, cos(i, farther i) - cos(i, nearer i) + margin).

    It is 0 for a row that is not `ordered`, (b,) bool (the triplet loss of ArcCSE). anchor, nearer,
    farther: (b, D).
    """
    difference = paired_cosines(anchor, farther) - paired_cosines(anchor, nearer)
    return (F.relu(difference + margin) * ordered).mean()


def bidirectional_margin(
    anchor: Tensor, positive: Tensor, negative: Tensor, *, alpha: float, beta: float
) -> Tensor:
    """Return the scalar mean over i of ReLU(d + alpha) + ReLU(-d - beta) (SNCSE's second loss).

    d = cos(i, i-) - cos(i, i+): the soft negative i- is to be less similar than the positive, by
    alpha at least and by beta at most. anchor, positive, negative: (b, D).
    """
    difference = paired_cosines(anchor, negative) - paired_cosines(anchor, positive)
    return (F.relu(difference + alpha) + F.relu(-difference - beta)).mean()


def energy_hinge(
    anchor: Tensor, positive: Tensor, negative: Tensor, *, margin: float, first: int = 0
) -> Tensor:
    """Return the scalar mean over i of max(0, margin + m_i - cos(i,i+)).

    m_i is the largest of cos(i,j+) for j other than i, and of cos(i,j-) for all j (PromCSE, section
    3.3). anchor: (b, D); positive, negative: (B, D).
    """
    positives = cosines(anchor, positive)
    own = positives.diagonal(first)
    target = torch.arange(first, first + len(anchor), device=anchor.device)[:, None]
    others = positives.scatter(1, target, -torch.inf)
    hardest = torch.cat([others, cosines(anchor, negative)], dim=1).amax(dim=1)
    return F.relu(margin + hardest - own).mean()


def same_document(documents: Tensor, columns: Tensor, first: int = 0) -> Tensor:
    """Return the mask (b, B) of the columns that are no negatives of a row: True is left out.

    Two rows of one document say similar things: as negatives they would be false ones. So j+ and
    j- are left out for row i if j is another row of i's document; i+ and i- always count.
    documents: (b,) of the rows. columns: (B,) documents of the columns.
    """
    same = documents[:, None] == columns[None, :]
    same.diagonal(first).fill_(False)
    return same


def _contrast(
    anchor: Tensor,
    positive: Tensor,
    others: tuple[tuple[Tensor, Tensor], ...],
    temperature: float,
    first: int,
    exclude: Tensor | None,
) -> Tensor:
    """Return the cross-entropy of each row's positive against all positives and `others`."""
    if not temperature > 0:
        raise UserError(f"temperature is {temperature}: it divides the cosine; give a value > 0")
    if first + len(anchor) > len(positive):
        raise UserError(
            f"anchor has {first + len(anchor)} rows and positive {len(positive)}: give each anchor "
            "its positive"
        )
    pairs = ((anchor, positive), *others)
    logits = torch.cat([cosines(rows, columns) for rows, columns in pairs], dim=1)
    if exclude is not None:
        logits = logits.masked_fill(exclude.repeat(1, len(pairs)), -torch.inf)
    target = torch.arange(first, first + len(anchor), device=anchor.device)
    return F.cross_entropy(logits / temperature, target)


def cosines(rows: Tensor, columns: Tensor) -> Tensor:
    """Return the cosines (b, B) of rows (b, D) and columns (B, D), in fp32 or better.

    At temperature 0.05 the logit of a bf16 cosine is wrong by up to 0.08.
    """
    rows, columns = _exact(rows, columns)
    with torch.autocast(rows.device.type, enabled=False):
        return _unit(rows) @ _unit(columns).T


def paired_cosines(left: Tensor, right: Tensor) -> Tensor:
    """Return the cosines (...) of the vectors (..., D) in equal places, in fp32 or better."""
    left, right = _exact(left, right)
    return (_unit(left) * _unit(right)).sum(dim=-1)


def _exact(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Return both in the more exact of their number formats, in fp32 at least."""
    kind = torch.promote_types(torch.promote_types(left.dtype, right.dtype), torch.float32)
    return left.to(kind), right.to(kind)


def _unit(vectors: Tensor) -> Tensor:
    """Return (..., D) vectors scaled to length 1; NaN stays NaN.

    A vector without a direction becomes 0 and gets no gradient.
    """
    norms = vectors.norm(dim=-1, keepdim=True)
    # For the other vectors the gradients equal those of F.normalize bit for bit.
    return vectors / torch.where(norms <= SMALLEST_NORM, torch.inf, norms).expand_as(vectors)
