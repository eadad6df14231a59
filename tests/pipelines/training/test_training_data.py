"""What a worker trains on: a window of a corpus against its parts read row by row."""

from __future__ import annotations

import shutil

import pytest
from tiny_corpus import write_corpus

from cotbert_core.errors import UserError
from cotbert_core.training.sampling import batches
from cotbert_core.training.shuffle_windows import Window
from pipelines.storage.corpus import Corpus
from pipelines.training import streaming, worker
from pipelines.training.data import InMemory, open_data, own_batches
from pipelines.training.training_run import TrainingRun


@pytest.fixture
def corpus(tmp_path, bert_folder, sentences):
    parts = (sentences[:3], sentences[3:4], sentences[4:])
    return Corpus.open(write_corpus(tmp_path / "corpus", bert_folder, *parts))


def test_the_rows_of_each_part_are_counted_and_must_be_the_manifests(
    tmp_path, bert_folder, sentences, corpus
):
    assert corpus.part_rows() == (3, 1, 2)
    short = write_corpus(tmp_path / "short", bert_folder, sentences, rows=9)
    with pytest.raises(UserError, match="hold 6 rows and its manifest"):
        Corpus.open(short).part_rows()


def test_a_corpus_in_memory_gives_the_rows_of_each_step(corpus, bert_folder, tiny_settings):
    settings = tiny_settings(bert_folder, {"batch_size": 2, "max_length": 3})
    data = open_data(corpus, None, settings)
    assert isinstance(data, InMemory)
    found = [(step, [*map(list, b.sentences)]) for step, b, _ in own_batches(data, settings, 1, 5)]
    lists = [row.tolist()[:3] for row in corpus.batch().sentences]
    plan = batches(6, settings, 1, 5)
    assert found == [(step, [lists[row] for row in rows]) for step, rows in plan]
    assert [step for step, _ in found] == [2, 3, 4, 5]


def test_only_paired_texts_that_the_method_uses_are_read(tmp_path, bert_folder, tiny_settings):
    """Their tokens would count when the rows of a step are divided among the workers."""
    path = write_corpus(tmp_path / "corpus", bert_folder, ["one", "two"], columns=["augmented"])
    corpus = Corpus.open(path)
    for positive, used in (("template", ()), ("paired", ("augmented",))):
        changes = {"method.positive": positive, "batch_size": 2, "shuffle_buffer_rows": 2}
        stream = open_data(corpus, (2,), tiny_settings(bert_folder, changes))
        assert stream.corpus.columns == used
    assert len(open_data(corpus, None, tiny_settings(bert_folder))) == 2, "no column is missed"


def test_a_run_that_is_at_its_end_reads_nothing(corpus, bert_folder, tiny_settings):
    settings = tiny_settings(bert_folder, {"batch_size": 2, "shuffle_buffer_rows": 2})
    assert not list(own_batches(open_data(corpus, corpus.part_rows(), settings), settings, 5, 5))


def test_a_window_is_its_parts_end_to_end_and_shuffled(
    corpus, bert_folder, tiny_settings, monkeypatch
):
    monkeypatch.setattr(streaming, "BLOCK_ROWS", 2)
    window = Window(parts=(2, 0), seed=(0, 0, 1), start=1, stop=4)
    blocks = list(streaming.read_window(corpus, tiny_settings(bert_folder), 3, window))
    assert [len(block) for block in blocks] == [2, 1]
    lists = [row.tolist() for row in corpus.batch().sentences]
    laid = [*lists[4:], *lists[:3]]
    found = [row for block in blocks for row in block["input_ids"].to_pylist()]
    assert found == [laid[number] for number in window.order(5)]


@pytest.mark.parametrize("what", ["replaced", "without a part"])
def test_a_corpus_that_changes_during_a_run_is_not_read(
    corpus, bert_folder, sentences, tiny_settings, what
):
    """Its windows would have other rows than those of the run."""
    window = Window(parts=(0,), seed=(0, 0, 1), start=0, stop=1)
    if what == "replaced":
        shutil.rmtree(corpus.path)
        write_corpus(corpus.path, bert_folder, sentences[:2], sentences[2:3], sentences[3:4])
    else:
        corpus.parts()[0].unlink()
    with pytest.raises(UserError, match="was changed while the run read it"):
        next(streaming.read_window(corpus, tiny_settings(bert_folder), 3, window))


def test_a_worker_that_starts_again_refuses_another_corpus(
    corpus, bert_folder, sentences, tiny_settings, tmp_path
):
    run = TrainingRun(tiny_settings(bert_folder), corpus, {}, tmp_path)
    shutil.rmtree(corpus.path)
    write_corpus(corpus.path, bert_folder, sentences[:3])
    with pytest.raises(UserError, match="was changed while the run read it"):
        worker._set_up({"run": run})
