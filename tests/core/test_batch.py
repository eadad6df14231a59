"""A batch and its companion texts."""

from __future__ import annotations

import numpy as np
import pytest

from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.training.batches import COLUMNS, Batch

SENTENCES = [[1, 2, 3], [4], [5, 6]]
AUGMENTED = [[7], [8, 9, 10, 11], []]
NEGATIVE = [[12, 13], [14], [15, 16, 17]]


def lists(texts):
    return None if texts is None else [row.tolist() for row in texts]


def batch_of(**columns):
    return Batch(**{name: Ragged.from_lists(texts) for name, texts in columns.items()})


@pytest.fixture
def full():
    return batch_of(sentences=SENTENCES, augmented=AUGMENTED, negative=NEGATIVE)


def contents(batch):
    return [lists(texts) for texts in (batch.sentences, batch.augmented, batch.negative)]


def test_columns_are_the_companions_that_are_there(full):
    assert full.columns == COLUMNS == ("augmented", "negative")
    assert batch_of(sentences=SENTENCES).columns == ()
    assert batch_of(sentences=SENTENCES, negative=NEGATIVE).columns == ("negative",)
    assert len(full) == 3


@pytest.mark.parametrize("rows", [[2, 0], [1, 1, 2], [], [0, 1, 2]])
def test_take_chooses_the_same_rows_of_every_text(full, rows):
    taken = full.take(np.array(rows, dtype=np.int64))
    expected = [[texts[row] for row in rows] for texts in (SENTENCES, AUGMENTED, NEGATIVE)]
    assert contents(taken) == expected
    assert len(taken) == len(rows)
    assert contents(full) == [SENTENCES, AUGMENTED, NEGATIVE], "the batch itself is unchanged"


@pytest.mark.parametrize("length", [1, 2, 9])
def test_cut_shortens_every_text(full, length):
    expected = [[row[:length] for row in texts] for texts in (SENTENCES, AUGMENTED, NEGATIVE)]
    assert contents(full.cut(length)) == expected


def test_companions_that_are_not_there_stay_away():
    batch = batch_of(sentences=SENTENCES, negative=NEGATIVE)
    for changed in (batch.take(np.array([1, 0])), batch.cut(1)):
        assert changed.augmented is None
        assert changed.columns == ("negative",)
    assert contents(batch.cut(1)) == [[[1], [4], [5]], None, [[12], [14], [15]]]
