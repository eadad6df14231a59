"""What a model folder records of the training that made it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Score:
    """Spearman x 100 of an encoder on graded pairs, before and after (None: not measured)."""

    name: str
    before: float | None
    after: float | None


@dataclass(frozen=True)
class TrainingMetadata:
    """What only the job that trained an encoder knows of it.

    data: of the corpus, label to value. scores: before the training and after it. made: date,
    commit, versions, label to value.
    """

    data: Mapping[str, Any] = field(default_factory=dict)
    scores: Sequence[Score] = ()
    made: Mapping[str, Any] = field(default_factory=dict)
