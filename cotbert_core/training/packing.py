"""Pack sentences into rows of bounded length, to avoid padding."""

from __future__ import annotations

import numpy as np

from cotbert_core.templates.ragged_ids import Ragged


def pack(sentences: Ragged, capacity: int, documents: np.ndarray | None = None) -> Ragged:
    """Return rows of whole sentences in their order, each row with at most `capacity` tokens.

    Rows are filled greedily. documents: (N,) ids, in groups; a row then has sentences of only one
    document. Longer sentences are truncated, and rows without tokens are left out.
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
