"""A batch: sentences in token ids with their paired texts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cotbert_core.templates.ragged_ids import Ragged

COLUMNS = ("augmented", "negative")


@dataclass(frozen=True)
class Batch:
    """N rows of token ids without special tokens and without a template.

    augmented: the positive's text, if it is not the sentence itself: a text with the same meaning
    (a back-translation, a rewrite, an entailment) or from the same document.
    negative: a similar text with another meaning (a contradiction).
    documents: (N,) int64, the document of each row, if the loss depends on it.
    """

    sentences: Ragged
    augmented: Ragged | None = None
    negative: Ragged | None = None
    documents: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.sentences)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names in COLUMNS that this batch has."""
        return tuple(name for name in COLUMNS if getattr(self, name) is not None)

    @property
    def tokens(self) -> np.ndarray:
        """The number of tokens of each row, including its paired texts, (N,) int64."""
        paired_texts = (getattr(self, name).lengths for name in self.columns)
        return sum(paired_texts, start=self.sentences.lengths)

    def take(self, rows: np.ndarray) -> Batch:
        """Return the rows with the numbers `rows`, in that order."""
        documents = None if self.documents is None else self.documents[rows]
        return replace(self._each(lambda texts: texts.take(rows)), documents=documents)

    def cut(self, max_length: int) -> Batch:
        """Return the batch with each text cut to its first `max_length` tokens."""
        return self._each(lambda texts: texts.cut(max_length))

    def _each(self, change: Callable[[Ragged], Ragged]) -> Batch:
        paired_texts: dict[str, Any] = {name: change(getattr(self, name)) for name in self.columns}
        return replace(self, sentences=change(self.sentences), **paired_texts)
