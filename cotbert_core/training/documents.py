"""Positives from a sentence's document: another sentence of it, or all the others.

Sentences are stored in the order of their documents, so the rest of a document is at most two spans
of token ids, and a batch of 64 takes 0.1 ms.

Letters: N sentences of documents with at least two, D such documents, b rows of a batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cotbert_core.method_settings.bases import PositiveSettings
from cotbert_core.settings import TrainSettings
from cotbert_core.templates.ragged_ids import Ragged, concatenate
from cotbert_core.training.batches import Batch

# Rows sorted at a time: 450,000 sentences at once take 1.2 s, in pieces that fit into the CPU's
# cache 0.4 s.
SORTED_TOGETHER = 16_384


@dataclass(frozen=True)
class DocumentSentences:
    """The sentences with another sentence in their document, in the order of the documents.

    sentences: N, by document and position. bounds: (D + 1,) int64; document d has the sentences
    bounds[d] to bounds[d + 1]. ids: (D,) int64, the documents' ids in the corpus.
    """

    sentences: Ragged
    bounds: np.ndarray
    ids: np.ndarray

    @classmethod
    def of(
        cls,
        sentences: Ragged,
        documents: np.ndarray,
        positions: np.ndarray,
        parts: np.ndarray | None = None,
    ) -> DocumentSentences:
        """Return the sentences of documents with at least two sentences.

        documents: (N,) ids. positions: (N,) in the documents. parts: (N,) numbers of the corpus's
        parts, if positives must come from the same part.
        """
        parts = np.zeros(len(documents), np.int8) if parts is None else parts
        order = np.lexsort((positions, documents, parts))
        own, its = documents[order], parts[order]
        new = np.ones(len(order), bool)
        new[1:] = (own[1:] != own[:-1]) | (its[1:] != its[:-1])
        starts = np.flatnonzero(new)
        sizes = np.diff(starts, append=len(order))
        ids = documents[order[starts]]
        order, several = order[np.repeat(sizes > 1, sizes)], sizes > 1
        bounds = np.zeros(int(several.sum()) + 1, np.int64)
        np.cumsum(sizes[several], out=bounds[1:])
        blocks = range(0, len(order), SORTED_TOGETHER)
        taken = concatenate(sentences.take(order[at : at + SORTED_TOGETHER]) for at in blocks)
        return cls(taken, bounds, ids[several])

    def __len__(self) -> int:
        return len(self.sentences)

    def documents_first(self, order: np.ndarray) -> np.ndarray:
        """Return an order of all rows (N,) that begins with one row of each document.

        A few steps then sample documents as evenly as held-out ones are chosen: half of all
        docstring sentences belong to the longest fifth of documents. `order`, a permutation,
        decides which row of a document is the first. The places of other rows decide when it comes,
        since the earliest of many rows is earlier than that of few.
        """
        place = np.argsort(order)
        document = np.repeat(np.arange(len(self.ids)), np.diff(self.bounds))
        rows = np.lexsort((place, document))
        later = np.ones(len(order), bool)
        later[self.bounds[:-1]] = False
        places_of_others = np.roll(place, len(order) // 2)
        return np.asarray(rows[np.lexsort((places_of_others, later))])

    def batch(self, rows: np.ndarray, settings: TrainSettings, draws: np.ndarray) -> Batch:
        """Return the sentences `rows` (b,) with their positives and documents.

        draws: (b,) random numbers in [0, 1) that choose neighbours.
        """
        method = settings.method
        assert isinstance(method, PositiveSettings)
        document = np.searchsorted(self.bounds, rows, side="right") - 1
        first, stop = self.bounds[document], self.bounds[document + 1]
        if method.positive == "rest":
            positives = self._rest(rows, first, stop, method.rest_length)
        else:
            positives = self.sentences.take(_other(rows, first, stop, draws))
            positives = positives.cut(settings.max_length)
        sentences = self.sentences.take(rows).cut(settings.max_length)
        return Batch(sentences, positives, documents=self.ids[document])

    def _rest(self, rows: np.ndarray, first: np.ndarray, stop: np.ndarray, most: int) -> Ragged:
        """Return the first `most` tokens of the sentences first..stop without `rows`."""
        offsets = self.sentences.offsets
        before = np.minimum(offsets[rows] - offsets[first], most)
        after = np.minimum(offsets[stop] - offsets[rows + 1], most - before)
        starts = np.stack([offsets[first], offsets[rows + 1]], axis=1).ravel()
        spans = self.sentences.spans(starts, np.stack([before, after], axis=1).ravel())
        return Ragged.from_lengths(spans.flat, before + after)


def _other(rows: np.ndarray, first: np.ndarray, stop: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Return a random index in first..stop for each row, other than the row itself."""
    chosen: np.ndarray = first + (draws * (stop - first - 1)).astype(np.int64)
    return np.where(chosen < rows, chosen, chosen + 1)


def count_anchors(documents: np.ndarray) -> int:
    """Return the number of rows with another row in their document. documents: (N,) ids."""
    _, sizes = np.unique(documents, return_counts=True)
    return int(sizes[sizes > 1].sum())
