"""A corpus streamed by Ray Data: the batches of a slow reading, also on two workers and resumed."""

from __future__ import annotations

import shutil
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray
from document_corpus import rows_of, same_document, write_document_corpus
from run_folders import curve, unfinished_copy
from tiny_corpus import write_corpus
from trainings import SENTENCES, result_of, training

from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.methods import build_method
from cotbert_core.settings import override
from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.training.batches import Batch
from cotbert_core.training.checkpoints import checkpoints
from cotbert_core.training.shuffle_windows import windows
from cotbert_core.training.step import make_optimizer, train_step
from pipelines.cli import main
from pipelines.recipes import settings_for
from pipelines.storage.corpus import Corpus, corpus_table
from pipelines.training.data import open_data
from pipelines.training.documents import streamed_rows
from pipelines.training.metrics_log import read_rows
from pipelines.training.streaming import Stream
from pipelines.training.training_state import seed_all

pytestmark = pytest.mark.ray_local

PLAIN = {f"templates.{role}": None for role in ("anchor", "positive", "negative")}
SETTINGS = (
    *("batch_size=8", "max_steps=12", "eval_every=4", "max_length=9", "workers=2"),
    *("optimizer.learning_rate=1e-3", "precision=fp32", "dropout=0", "shuffle_buffer_rows=20"),
)
# 77 different sentences in parts of unequal size: 9 steps an epoch, 5 rows left over.
BOUNDS = (0, 11, 12, 30, 44, 60, 77)


@pytest.fixture(scope="module")
def corpus(home, bert_folder):
    parts = [SENTENCES[a:b] for a, b in pairwise(BOUNDS)]
    return Corpus.open(write_corpus(home / "corpus", bert_folder, *parts))


@pytest.fixture(scope="module")
def settings(bert_folder):
    return settings_for("quickstart", None, SETTINGS, {"encoder": bert_folder})


def slow_batches(corpus, settings, done, total):
    """Global batches as lists of (sentence, companions...), the parts read row by row."""
    parts = [pq.read_table(path).to_pylist() for path in sorted(corpus.path.glob("data/part-*"))]
    names = ["input_ids", *(f"{name}_ids" for name in corpus.columns)]
    rows = []
    for window in windows(corpus.part_rows(), settings, 20, done, total):
        laid = [row for number in window.parts for row in parts[number]]
        rows += [laid[number] for number in window.order(len(laid))]
    texts = [[row[name][: settings.max_length] for name in names] for row in rows]
    return [texts[start : start + 8] for start in range(0, len(texts), 8)]


@pytest.fixture(scope="module")
def trained(home, corpus, bert_folder):
    """A finished run of two workers over one epoch and a third."""
    flags = ("--keep-checkpoints", "all")
    assert main(training(bert_folder, corpus.path, home / "run", *SETTINGS, flags=flags)) == 0
    return home / "run"


def test_two_workers_train_on_the_batches_of_a_slow_reading(trained, corpus, settings):
    seed_all(settings.seed)
    method = build_method(load_backbone(settings.encoder, dropout=0.0), settings).train()
    optimizer = make_optimizer(method, settings.optimizer)
    expected = []
    for step, rows in enumerate(slow_batches(corpus, settings, 0, 12), 1):
        batch = Batch(Ragged.from_lists([row[0] for row in rows]))
        expected.append(train_step(method, batch, optimizer, settings, step, 12).loss)
    assert len(expected) == 12
    assert curve(trained) == pytest.approx(expected, abs=1e-4)
    assert max(expected) - min(expected) > 1e-2, "premise: the losses move"
    logged = read_rows(trained / "metrics.jsonl")
    for step in range(1, 13):
        assert 0 < logged[step]["data_wait_seconds"] < logged[step]["step_seconds"]


def test_a_run_resumed_in_the_middle_of_a_window_has_the_curve_of_the_whole(
    home, trained, corpus, settings, bert_folder
):
    output = unfinished_copy(trained, home / "resumed")
    last, before = checkpoints(output / "checkpoints")[:-3:-1]
    assert (last.step, before.step) == (12, 8)
    shutil.rmtree(last.path)
    first = next(windows(corpus.part_rows(), settings, 20, 8, 12))
    assert first.start > 0, "premise: step 8 ended within a window"
    assert main(training(bert_folder, corpus.path, output, *SETTINGS)) == 0
    assert curve(output) == curve(trained)
    assert result_of(output)["dev_spearman"] == result_of(trained)["dev_spearman"]


def test_companions_are_streamed_with_their_sentence_and_cut(home, corpus, settings):
    """Without cores of their own: the session's are all taken."""
    folder = home / "triples"
    shutil.copytree(corpus.path, folder)
    for path in folder.glob("data/part-*"):
        table = pq.read_table(path)
        own = table["input_ids"].to_pylist()
        texts = [pa.array([""] * len(own))] * 3
        tokens = [own, [row[::-1] for row in own], [row * 2 for row in own]]
        made = corpus_table(table["id"].combine_chunks(), texts, [*map(Ragged.from_lists, tokens)])
        pq.write_table(made, path)
    triples = Corpus(folder, {**corpus.manifest, "columns": ["augmented", "negative"]})
    stream = Stream(triples, triples.part_rows(), settings.shuffle_buffer_rows)

    @ray.remote(num_cpus=ray.cluster_resources()["CPU"])
    def read():
        return [
            (step, batch.sentences, batch.augmented, batch.negative)
            for step, batch in stream.batches(settings, 5, 20)
        ]

    found = ray.get(read.remote())
    assert [step for step, *_ in found] == list(range(6, 21))
    expected = slow_batches(triples, settings, 5, 20)
    for (_, *texts), rows in zip(found, expected, strict=True):
        assert [[ids.tolist() for ids in row] for row in zip(*texts, strict=True)] == rows
    sentence, augmented, negative = expected[0][0]
    assert sentence != augmented != negative, "premise"


def test_positives_from_documents_are_streamed_with_their_sentence(home, bert_folder, settings):
    parts = [[(d, p) for d in range(k, k + 4) for p in range(d % 4 + 1)] for k in (0, 4, 8)]
    corpus = Corpus.open(write_document_corpus(home / "documents", bert_folder, *parts))
    changes = {"method.name": "simcse", "method.positive": "rest", "method.rest_length": 20}
    settings = override(settings, {**PLAIN, **changes})
    stream = open_data(corpus, streamed_rows(settings, corpus), settings)
    assert len(stream) == 27, "the three documents of one sentence are left out"

    @ray.remote(num_cpus=1)
    def read(done):
        return dict(stream.batches(settings, done, 7))

    whole, resumed = ray.get([read.remote(0), read.remote(4)])
    assert [*resumed] == [5, 6, 7]
    rows = rows_of(corpus.path)
    for step, batch in whole.items():
        lists = zip(batch.sentences, batch.augmented, batch.documents, strict=True)
        for ids, rest, document in lists:
            (row,) = [r for r in rows if r["document"] == document and r["input_ids"][:9] == [*ids]]
            expected = [t for o in same_document(rows, row, in_part=True) for t in o["input_ids"]]
            assert rest.tolist() == expected[:20]
        if step in resumed:
            assert [*map(list, resumed[step].augmented)] == [*map(list, batch.augmented)]
