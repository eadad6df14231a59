"""A batch and its companion texts."""

from __future__ import annotations

import numpy as np
import pytest

from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.training.batches import COLUMNS, Batch

TEXTS = {
    "sentences": [[1, 2, 3], [4], [5, 6]],
    "augmented": [[7], [8, 9, 10, 11], []],
    "negative": [[12, 13], [14], [15, 16, 17]],
}
DOCUMENTS = np.array([5, 2**62, 5])


def contents(batch):
    texts = {name: getattr(batch, name) for name in ("sentences", *batch.columns)}
    return {name: [row.tolist() for row in rows] for name, rows in texts.items()}


@pytest.mark.parametrize("names", [(), ("negative",), COLUMNS], ids=str)
def test_rows_are_taken_and_cut_of_every_text_that_is_there(names):
    texts = {name: TEXTS[name] for name in ("sentences", *names)}
    made = {name: Ragged.from_lists(rows) for name, rows in texts.items()}
    batch = Batch(**made, documents=DOCUMENTS if names else None)
    assert (batch.columns, len(batch)) == (names, 3)
    for rows in ([2, 0], [1, 1, 2], []):
        taken = batch.take(np.array(rows, dtype=np.int64))
        assert contents(taken) == {n: [text[row] for row in rows] for n, text in texts.items()}
        assert len(taken) == len(rows)
        found = None if taken.documents is None else taken.documents.tolist()
        assert found == (DOCUMENTS[rows].tolist() if names else None)
    for length in (1, 2, 9):
        cut = {name: [row[:length] for row in text] for name, text in texts.items()}
        assert contents(batch.cut(length)) == cut
    assert contents(batch) == texts, "the batch itself is unchanged"
