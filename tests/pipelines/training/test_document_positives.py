"""Positives from documents: the batches of a worker against plain lists of each document."""

from __future__ import annotations

import numpy as np
import pytest
from document_corpus import rows_of, same_document, write_document_corpus
from tiny_corpus import write_corpus

from cotbert_core.encoder.backbone import load_tokenizer
from cotbert_core.encoder.pooling_files import query_template
from cotbert_core.errors import UserError
from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.templates.wrapping import BoundTemplate
from cotbert_core.training.documents import DocumentSentences
from cotbert_core.training.sampling import total_steps
from cotbert_core.training.shuffle_windows import windows
from pipelines.storage.corpus import Corpus
from pipelines.training import data as data_module
from pipelines.training import streaming
from pipelines.training.data import open_data, own_batches
from pipelines.training.documents import (
    document_batch,
    streamed_rows,
    training_rows,
)
from pipelines.training.inputs import check_inputs

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
    "promptbert": {f"templates.{r}": f"promptbert/{r}" for r in ("anchor", "positive")},
}
PLAIN = {f"templates.{role}": None for role in ("anchor", "positive", "negative")}


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


def batches_of(corpus, settings, done=0):
    total = total_steps(training_rows(settings, corpus), settings)
    data = open_data(corpus, None, settings)
    return {step: batch for step, batch, _ in own_batches(data, settings, done, total)}


def content(batch):
    """(sentence, positive, document) of each row."""
    texts = ([ids.tolist() for ids in ragged] for ragged in (batch.sentences, batch.augmented))
    return [*zip(*texts, batch.documents.tolist(), strict=True)]


def source(rows, sentence, document):
    """The row of a sentence that was cut to five tokens."""
    same = [r for r in rows if r["document"] == document and r["input_ids"][:5] == sentence]
    (row,) = same  # premise: the cut sentences of a document differ
    return row


@pytest.mark.parametrize("method", METHODS)
def test_the_rest_of_a_document_is_its_other_sentences_by_position(corpus, make, method):
    settings, rows = make("rest", method), rows_of(corpus.path)
    batches, lengths = batches_of(corpus, settings), set()
    assert len(batches) == 3 * (ANCHORS // 4)
    for batch in batches.values():
        for sentence, rest, document in content(batch):
            others = same_document(rows, source(rows, sentence, document))
            expected = [token for other in others for token in other["input_ids"]]
            assert rest == expected[:9]
            lengths.add(len(expected) > 9)
    assert lengths == {True, False}, "premise: some are longer than rest_length, some are not"


def test_a_neighbour_is_another_sentence_drawn_anew_each_epoch(corpus, make):
    settings, rows = make("neighbour", batch_size=13, epochs=40), rows_of(corpus.path)
    drawn = {}
    for batch in batches_of(corpus, settings).values():
        for sentence, neighbour, document in content(batch):
            row, found = (source(rows, ids, document) for ids in (sentence, neighbour))
            drawn.setdefault(row["id"], set()).add(found["id"])
    assert len(drawn) == ANCHORS, "each sentence with a companion is an anchor"
    for row in rows:
        assert drawn.get(row["id"], set()) == {o["id"] for o in same_document(rows, row)}


def test_an_epoch_begins_with_a_sentence_of_each_document(corpus, make):
    batches = batches_of(corpus, make("rest", batch_size=5))
    assert len(batches) == 6, "premise: two steps are an epoch of 13 sentences of 5 documents"
    for step in (1, 3, 5):
        assert len(set(batches[step].documents.tolist())) == 5


def test_an_epoch_begins_with_long_and_short_documents_alike():
    # The earliest of many random places is earlier than that of few: in that order the first
    # 500 documents have 11 sentences on average and the mean is 6.
    sizes = np.tile([2, 10], 1000)
    documents = np.repeat(np.arange(2000), sizes)
    positions = np.concatenate([np.arange(size) for size in sizes])
    ids = Ragged.from_lengths(np.zeros(len(documents), np.int32), np.ones(len(documents), np.int64))
    sentences = DocumentSentences.of(ids, documents, positions)
    order = np.random.default_rng(1).permutation(len(documents))
    arranged = sentences.documents_first(order)
    assert sorted(arranged.tolist()) == sorted(order.tolist())
    first, rest = arranged[:2000], arranged[2000:]
    assert len(set(documents[first].tolist())) == 2000
    assert abs(sizes[documents[first[:500]]].mean() - 6) < 0.5
    assert abs((positions[first[:500]] == 0).mean() - np.mean(1 / sizes)) < 0.06
    # What is left is in no order of documents either.
    assert abs(np.mean(sizes[documents[rest[:2000]]]) - np.mean(sizes[documents[rest]])) < 0.3


@pytest.mark.parametrize("positive", ["rest", "neighbour"])
def test_a_resumed_run_and_two_workers_have_the_batches_of_the_whole(
    corpus, make, positive, monkeypatch
):
    settings = make(positive)
    whole = {step: content(batch) for step, batch in batches_of(corpus, settings).items()}
    resumed = batches_of(corpus, settings, done=5)
    assert [*resumed] == [6, 7, 8, 9]
    for step, batch in resumed.items():
        assert content(batch) == whole[step]
    monkeypatch.setattr(data_module, "world_size", lambda: 2)
    shares = []
    for own in (0, 1):
        monkeypatch.setattr(data_module, "rank", lambda own=own: own)
        shares.append(batches_of(corpus, settings))
    for step, rows in whole.items():
        halves = [content(share[step]) for share in shares]
        assert [len(half) for half in halves] == [2, 2]
        assert sorted(halves[0] + halves[1]) == sorted(rows)


@pytest.fixture
def streamed(monkeypatch):
    """The rows of the windows one after another, as Ray Data hands them on."""

    def rows(corpus, settings, done=0, total=6, block_rows=3):
        monkeypatch.setattr(streaming, "BLOCK_ROWS", block_rows)
        plan = windows(streamed_rows(settings, corpus), settings, 5, done, total)
        parts = len(corpus.parts())
        tables = [t for w in plan for t in streaming.read_window(corpus, settings, parts, w)]
        return [row for table in tables for row in content(document_batch(table))]

    return rows


@pytest.mark.parametrize("positive", ["rest", "neighbour"])
def test_streamed_positives_are_of_the_same_part(corpus, make, positive, streamed):
    settings = make(positive, batch_size=2, shuffle_buffer_rows=5)
    # In part 0 document 7 has two sentences and 9 has two; in part 1 it is 7 and in 2 the big one.
    assert streamed_rows(settings, corpus) == (4, 2, 2)
    assert training_rows(settings, corpus) == 8
    rows, found, seen = rows_of(corpus.path), streamed(corpus, settings), set()
    assert len(found) == 12
    for sentence, other, document in found:
        row = source(rows, sentence, document)
        others = same_document(rows, row, in_part=True)
        length = 9 if positive == "rest" else 5
        assert other == [t for o in others for t in o["input_ids"]][:length]
        seen.add(row["id"])
    assert len(seen) == 8, "an epoch of four steps has each of them once"
    assert streamed(corpus, settings, done=3) == found[6:]
    assert streamed(corpus, settings, block_rows=100) == found


def test_a_streamed_neighbour_is_drawn_by_its_place_in_the_window(
    tmp_path, bert_folder, make, streamed
):
    parts = ([(1, p) for p in range(7)], [(2, p) for p in range(6)])
    corpus = Corpus.open(write_document_corpus(tmp_path / "two", bert_folder, *parts))
    settings = make("neighbour", batch_size=4, shuffle_buffer_rows=5)
    found = streamed(corpus, settings, total=100)
    assert streamed(corpus, settings, done=2, total=100, block_rows=4) == found[8:]
    drawn = {}
    for sentence, other, _ in found:
        drawn.setdefault(tuple(sentence), set()).add(tuple(other))
    assert {len(others) for others in drawn.values()} == {6, 5}, "each other sentence"
    assert all(sentence not in others for sentence, others in drawn.items()), "never itself"


def test_documents_that_are_needed_and_not_there_are_an_error(tmp_path, bert_folder, make):
    corpus = Corpus.open(write_corpus(tmp_path / "plain", bert_folder, ["A man", "oil"] * 4))
    with pytest.raises(UserError, match=r"'rest' and the corpus .* has no documents: prep"):
        check_inputs(make("rest"), corpus)
    assert check_inputs(make("dropout"), corpus) is not None


def test_sentences_without_another_in_their_document_are_counted(corpus, make):
    message = (
        "method.positive is rest: 3 of 16 sentences have no other sentence of their document and "
        "are not trained on"
    )
    assert message in check_inputs(make("rest"), corpus)
    streamed = "\n".join(check_inputs(make("rest", shuffle_buffer_rows=5), corpus))
    assert "8 of 16 sentences have no other sentence of their document in the same par" in streamed
    with pytest.raises(UserError, match="has 13 sentences with another one in their document"):
        check_inputs(make("rest", batch_size=14), corpus)
    assert not any("method.positive" in found for found in check_inputs(make("dropout"), corpus))


@pytest.mark.parametrize(
    ("method", "longest", "message"),
    [
        ("simcse", 126, "the encoder takes"),
        ("promptbert", 118, "give --set method.rest_length=118 or"),
        ("denosent", 121, "give --set method.rest_length=121 or"),
    ],
)
def test_a_rest_must_fit_into_the_encoder(corpus, make, method, longest, message):
    fits, too_long = ({"method.rest_length": n} for n in (longest, longest + 1))
    check_inputs(make("rest", method, **fits), corpus)
    with pytest.raises(UserError, match=f"method.rest_length is {longest + 1}.*{message}"):
        check_inputs(make("rest", method, **too_long), corpus)
    check_inputs(make("neighbour", method, **too_long), corpus)


def test_a_rest_needs_no_room_for_the_prompt_of_queries(corpus, make, queried_folder):
    prompt = BoundTemplate.bind(query_template(queried_folder), load_tokenizer(queried_folder).hf)
    assert 128 - prompt.length < 126, "premise"
    rest = {"encoder": queried_folder, "method.rest_length": 126}
    check_inputs(make("rest", "simcse", **rest), corpus)
    with pytest.raises(UserError, match=r"method\.rest_length is 127 and the encoder takes 126"):
        check_inputs(make("rest", "simcse", **rest | {"method.rest_length": 127}), corpus)
