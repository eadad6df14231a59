"""A score without labels: how often a sentence finds the document that it was taken from.

A query is a sentence that was held out of a document, its target is the rest of that document, and
it is searched among the targets of all held-out documents by cosine. That is a proxy for retrieval
and similarity in the same domain (docs/evaluation.md).

Letters: Q queries, N targets, U distinct targets, D dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cotbert_core.evaluation.geometry import unit_rows
from cotbert_core.evaluation.pairs import Encode, encode_distinct

# Cosines (queries, targets) in memory at once: 16 MB in float64.
BLOCK_CELLS = 2_000_000
# Cosines that are closer than this are a tie. Vectors are float32: the same text in another batch
# has a cosine that is different by about 1e-7.
TIE = 1e-6
MRR_DEPTH = 10


@dataclass(frozen=True)
class HeldOut:
    """Queries, and the targets among which each is searched.

    queries: Q texts. targets: N texts, also those of queries that are not here. rows: (Q,) index of
    each query's own target.
    """

    queries: list[str]
    targets: list[str]
    rows: np.ndarray

    def __len__(self) -> int:
        return len(self.queries)


@dataclass(frozen=True)
class HeldOutScores:
    """The scores of an encoder on Q queries.

    found_first: queries whose target is ranked first, x 100. mrr10: mean reciprocal rank x 100, 0
    for a rank above 10. ranks: (Q,) from 1.
    """

    found_first: float
    mrr10: float
    ranks: np.ndarray

    @property
    def found(self) -> np.ndarray:
        """(Q,) 1.0 for a query that finds its target first, otherwise 0.0."""
        return np.asarray(self.ranks == 1, float)

    @property
    def reciprocal(self) -> np.ndarray:
        """(Q,) reciprocal ranks, 0 for a rank above 10."""
        return np.where(self.ranks <= MRR_DEPTH, 1.0 / self.ranks, 0.0)


def score_held_out(encode: Encode, held_out: HeldOut) -> HeldOutScores:
    """Return the scores of an encoder; each distinct text is encoded once."""
    queries, targets = encode_distinct(encode, held_out.queries, held_out.targets)
    ranks = target_ranks(queries, targets, held_out.targets, held_out.rows)
    scores = HeldOutScores(0.0, 0.0, ranks)
    return HeldOutScores(
        100 * float(scores.found.mean()), 100 * float(scores.reciprocal.mean()), ranks
    )


def target_ranks(
    queries: np.ndarray, targets: np.ndarray, texts: Sequence[str], rows: np.ndarray
) -> np.ndarray:
    """Return the rank (Q,) of each query's own target among the distinct texts of the targets.

    queries: (Q, D). targets: (N, D) with their N texts. rows: (Q,) index of the own target. Targets
    of the same text are one target, so a query that finds a twin of its own has found it. A tie
    with another target, or a cosine that is no number, counts against the query.
    """
    place: dict[str, int] = {}
    distinct = np.array([place.setdefault(text, len(place)) for text in texts])
    _, first = np.unique(distinct, return_index=True)
    unit, own = unit_rows(targets[first]), distinct[rows]
    ranks = np.empty(len(queries), int)
    step = max(1, BLOCK_CELLS // len(unit))
    for start in range(0, len(queries), step):
        block = slice(start, start + step)
        cosines = unit_rows(queries[block]) @ unit.T
        mine = cosines[np.arange(len(cosines)), own[block]][:, None]
        # Among all targets that are not further away the own one counts itself.
        ranks[block] = len(unit) - (cosines < mine - TIE).sum(axis=1)
    return ranks
