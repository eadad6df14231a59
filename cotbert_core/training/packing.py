"""Sentences one after another in rows of up to a number of tokens, so that little is padded."""

from __future__ import annotations

import numpy as np

from cotbert_core.templates.ragged_ids import Ragged


def pack(sentences: Ragged, capacity: int, documents: np.ndarray | None = None) -> Ragged:
    """Return rows of whole sentences in their order, each row with at most `capacity` tokens.

    A row takes the next sentence as long as it fits. documents: (N,) the document of each sentence;
    a row has sentences of one document, whose sentences must stand together. A longer sentence is
    cut, and a row without tokens is left out.
    """
    sentences = sentences.cut(capacity)
    changes = np.zeros(len(sentences), bool)
    if documents is not None:
        changes[1:] = documents[1:] != documents[:-1]
    starts, start = [0], 0
    ends = sentences.offsets[1:].tolist()
    for begin, end, changed in zip([0, *ends], ends, changes.tolist(), strict=False):
        if changed or end - start > capacity:
            starts.append(begin)
            start = begin
    return Ragged(sentences.flat, np.unique([*starts, len(sentences.flat)]).astype(np.int64))
