"""How often the text nearest to another has the same label: leave-one-out accuracy of the nearest
neighbour. The labels are used for this check alone, never for training.

Letters: N texts, A of them asked, D dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cotbert_core.evaluation.geometry import unit_rows
from cotbert_core.evaluation.held_out import TIE
from cotbert_core.evaluation.keyword_search import BLOCK_CELLS
from cotbert_core.evaluation.pairs import Encode, encode_distinct


@dataclass(frozen=True)
class Labelled:
    """N distinct texts, and the number of each one's label, (N,) from 0."""

    texts: list[str]
    labels: np.ndarray

    @cached_property
    def asked(self) -> np.ndarray:
        """The indices (A,) of the texts whose label another text has; the others cannot be right,
        but may be nearest to one of these."""
        return np.flatnonzero(np.bincount(self.labels)[self.labels] > 1)

    @property
    def label_count(self) -> int:
        """The number of different labels."""
        return len(np.unique(self.labels))

    @property
    def chance(self) -> float:
        """The accuracy x 100 if each text's nearest one were a random one."""
        others = np.bincount(self.labels)[self.labels[self.asked]] - 1
        return 100 * float(others.mean()) / (len(self.texts) - 1)


def same_label(encode: Encode, labelled: Labelled) -> np.ndarray:
    """Return (A,) 1.0 for each asked text whose nearest text by cosine has its label, else 0.0.

    A tie between texts of its own and of another label counts against it.
    """
    (vectors,) = encode_distinct(encode, labelled.texts)
    unit, labels = unit_rows(vectors), labelled.labels
    step = max(1, BLOCK_CELLS // len(labels))
    found = []
    for start in range(0, len(labelled.asked), step):
        rows = labelled.asked[start : start + step]
        cosines = unit[rows] @ unit.T
        cosines[np.arange(len(rows)), rows] = -np.inf
        same = labels[rows][:, None] == labels
        own = np.where(same, cosines, -np.inf).max(axis=1)
        found.append(own > np.where(same, -np.inf, cosines).max(axis=1) + TIE)
    return np.concatenate(found).astype(float)
