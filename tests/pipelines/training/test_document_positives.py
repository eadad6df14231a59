"""Positives from documents: the batches of a worker against plain lists of each document."""

from __future__ import annotations

import pytest
from document_corpus import rows_of, same_document, write_document_corpus

from cotbert_core.training.sampling import total_steps
from pipelines.storage.corpus import Corpus
from pipelines.training.data import open_data, own_batches
from pipelines.training.documents import training_rows

# Documents of 1 to 5 sentences, whose positions have gaps and whose rows are in no order.
PARTS = (
    [(7, 4), (3, 0), (7, 0), (5, 2), (9, 1), (9, 0)],
    [(7, 2), (8, 3), (3, 5), (5, 0), (7, 9), (4, 0)],
    [(2**62, 1), (7, 3), (2**62, 0), (6, 0)],
)
ANCHORS = 13
METHODS = {
    "simcse": {},
    "denosent": {"templates.anchor": "denosent"},
    "promptbert": {
        "templates.anchor": "promptbert/anchor",
        "templates.positive": "promptbert/positive",
    },
}
PLAIN = {"templates.anchor": None, "templates.positive": None, "templates.negative": None}


@pytest.fixture
def corpus(tmp_path, bert_folder):
    return Corpus.open(write_document_corpus(tmp_path / "corpus", bert_folder, *PARTS))


@pytest.fixture
def make(bert_folder, tiny_settings):
    def settings(positive, method="simcse", **changes):
        chosen = {"method.name": method, **PLAIN, **METHODS[method], "method.positive": positive}
        small = {"batch_size": 4, "max_length": 5, "epochs": 3, "method.rest_length": 9}
        return tiny_settings(bert_folder, chosen | small | changes)

    return settings


def batches_of(corpus, settings, done=0, total=None):
    total = total_steps(training_rows(settings, corpus), settings) if total is None else total
    data = open_data(corpus, None, settings)
    return {step: batch for step, batch, _ in own_batches(data, settings, done, total)}


def lists(ragged):
    return [ids.tolist() for ids in ragged]


def sources(rows, batch, max_length):
    """Return the row of each sentence in a batch, by its document and first tokens."""
    found = []
    for ids, document in zip(lists(batch.sentences), batch.documents.tolist(), strict=True):
        same = [r for r in rows if r["document"] == document and r["input_ids"][:max_length] == ids]
        assert len(same) == 1, "premise: the cut sentences of a document differ"
        found += same
    return found


@pytest.mark.parametrize("method", METHODS)
def test_the_rest_of_a_document_is_its_other_sentences_by_position(corpus, make, method):
    settings, rows = make("rest", method), rows_of(corpus.path)
    cut = whole = 0
    batches = batches_of(corpus, settings)
    assert len(batches) == 3 * (ANCHORS // 4)
    for batch in batches.values():
        for row, rest in zip(sources(rows, batch, 5), lists(batch.augmented), strict=True):
            expected = [t for other in same_document(rows, row) for t in other["input_ids"]]
            assert rest == expected[:9]
            cut, whole = cut + (len(expected) > 9), whole + (len(expected) <= 9)
    assert cut, "premise: some are longer than rest_length"
    assert whole, "premise: some are not"


def test_a_neighbour_is_another_sentence_drawn_anew_each_epoch(corpus, make):
    settings, rows = make("neighbour", batch_size=13, epochs=40), rows_of(corpus.path)
    drawn = {}
    for batch in batches_of(corpus, settings).values():
        for row, ids in zip(sources(rows, batch, 5), lists(batch.augmented), strict=True):
            others = same_document(rows, row)
            (found,) = [o for o in others if o["input_ids"][:5] == ids]
            drawn.setdefault(row["id"], set()).add(found["id"])
    assert len(drawn) == ANCHORS, "each sentence with a companion is an anchor"
    for row in rows:
        assert drawn.get(row["id"], set()) == {o["id"] for o in same_document(rows, row)}
