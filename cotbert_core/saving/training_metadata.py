"""The record of the training in a model folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Score:
    """A score x 100 before and after training (None: not measured), whose name says what it is
    unless it is a Spearman correlation with graded pairs."""

    name: str
    before: float | None
    after: float | None


@dataclass(frozen=True)
class TrainingMetadata:
    """The facts that only the job that trained an encoder knows.

    data: facts about the corpus, label to value. scores: scores before and after training. made:
    date, commit and versions, label to value.
    """

    data: Mapping[str, Any] = field(default_factory=dict)
    scores: Sequence[Score] = ()
    made: Mapping[str, Any] = field(default_factory=dict)
