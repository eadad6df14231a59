"""`dev: own`: the best step is chosen on a corpus's held-out documents."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from tiny_corpus import write_corpus, write_held_out
from trainings import ENDS, SENTENCES, SUBJECTS, result_of, training

from cotbert_core import SentenceEncoder
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.errors import UserError
from cotbert_core.evaluation.held_out import HeldOut, score_held_out, score_keywords
from cotbert_core.evaluation.pairs import EncodeFunctions, Pairs, score_pairs
from cotbert_core.files import write_json
from cotbert_core.methods import build_method
from cotbert_core.settings import ROLES, TrainSettings
from cotbert_core.training import distributed
from pipelines.cli import main
from pipelines.commands.training import TrainingOptions
from pipelines.storage.held_out_file import has_held_out, read_held_out
from pipelines.training import worker
from pipelines.training.baseline import NAMES, Baseline, score_untouched
from pipelines.training.dev_sets import (
    BUILT_IN_PAIRS,
    dev_digest,
    dev_metric,
    dev_name,
    dev_pairs,
    graded_sets,
    keyword_score,
    score_dev,
    with_own,
    with_pairs,
)
from pipelines.training.metrics_log import read_rows

QUERIES = [f"{s} is singing {e}" for s in SUBJECTS[:6] for e in ENDS]
# Longer than the 8 tokens to which the tests' settings cut a sentence of training.
TARGETS = [
    f"The price of oil rose , and {s} walks {e} {s} saw oil" for s in SUBJECTS[:6] for e in ENDS
]
OWN = TrainSettings(dev="own")
SETTINGS = ("batch_size=8", "precision=fp32", "max_length=12", "workers=1", "dev=own")


@pytest.fixture
def corpus(tmp_path, bert_folder):
    folder = write_corpus(tmp_path / "corpus", bert_folder, SENTENCES[:48], max_length=12)
    return write_held_out(folder, QUERIES, TARGETS)


@pytest.fixture
def dev(corpus):
    """The held-out documents alone, with graded pairs beside them, and graded pairs alone."""
    return SimpleNamespace(
        alone=with_own({}, corpus),
        beside=with_own(graded_sets(OWN, None, BUILT_IN_PAIRS), corpus),
        graded=graded_sets(TrainSettings(), None, BUILT_IN_PAIRS),
    )


def random_vectors():
    """An encoder that draws a vector for each text."""
    draw, table = np.random.default_rng(0), {}
    return lambda texts: np.array([table.setdefault(t, draw.normal(size=4)) for t in texts])


def test_each_half_is_searched_among_the_targets_of_both(corpus):
    for half, rows in (("dev", range(12)), ("test", range(12, 24))):
        found = read_held_out(corpus, half)
        assert found.queries == [QUERIES[row] for row in rows]
        assert found.targets == TARGETS
        assert found.rows.tolist() == list(rows)


def test_a_corpus_without_held_out_documents_is_refused(tmp_path):
    assert not has_held_out(tmp_path)
    unprepared = r"no folder made by `cotbert prepare`: check its name, or .* with --hold-out"
    with pytest.raises(UserError, match=unprepared):
        read_held_out(tmp_path, "dev")
    (tmp_path / "text.txt").write_text("One.\nTwo.\n")
    with pytest.raises(UserError, match=unprepared):  # before the text is prepared
        TrainingOptions(corpus=str(tmp_path / "text.txt")).open_data(OWN, tmp_path / "out")
    write_json(tmp_path / "manifest.json", {})
    with pytest.raises(UserError, match="no held-out documents: prepare it with --hold-out"):
        read_held_out(tmp_path, "dev")
    write_held_out(tmp_path, QUERIES[:3], TARGETS[:3])
    assert len(read_held_out(tmp_path, "test")) == 2
    with pytest.raises(UserError, match=r"have 1 dev query: at least 2 are needed"):
        read_held_out(tmp_path, "dev")
    (tmp_path / "held-out.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(UserError, match="is no file of held-out documents"):
        read_held_out(tmp_path, "dev")


def test_graded_pairs_are_scored_beside_them_and_choose_nothing(corpus, dev):
    encode, documents = random_vectors(), read_held_out(corpus, "dev")
    scores = score_dev(EncodeFunctions(encode), dev.beside)
    found = score_held_out(EncodeFunctions(encode), documents)
    (pairs,) = (one for one in dev.beside.values() if isinstance(one, Pairs))
    own = {"dev_found_first": found.found_first, "dev_mrr10": found.mrr10}
    spearman = score_pairs(encode, pairs).spearman
    assert scores == {**own, "dev_spearman.pairs.tsv": spearman}
    assert score_dev(EncodeFunctions(encode), dev.alone) == own
    words = score_keywords(documents).found_first
    for sets in (dev.alone, dev.beside):
        assert (dev_metric(sets).name, dev_name(sets)) == ("dev_found_first", "own documents")
        assert keyword_score(sets) == words
    assert with_pairs({"dev": "own"}, dev.beside) == {"dev": "own documents"}
    assert (dev_metric(dev.graded).name, keyword_score(dev.graded)) == ("dev_spearman", None)
    assert not any(isinstance(one, HeldOut) for one in dev.graded.values())
    other = with_own({}, write_held_out(corpus, QUERIES, TARGETS[::-1]))
    digests = {dev_digest(sets) for sets in (dev.alone, dev.beside, dev.graded, other)}
    assert len(digests) == 4


def check(settings, dev, bert_folder, monkeypatch):
    """The score of a worker's dev check of an untrained method, its row, and the method."""
    rows = []
    monkeypatch.setattr(worker, "log_metrics", lambda _, values: rows.append(values))
    method = build_method(load_backbone(bert_folder), settings)
    score = worker._check(SimpleNamespace(method=method, settings=settings, dev=dev))
    return score, rows[0], method


def test_a_dev_check_reads_whole_targets(corpus, dev, bert_folder, tiny_settings, monkeypatch):
    """Longer ones than the sentences of training."""
    settings = tiny_settings(bert_folder, {"dev": "own"})
    score, row, method = check(settings, dev.alone, bert_folder, monkeypatch)
    documents = read_held_out(corpus, "dev")
    encoder = SentenceEncoder(method.backbone, method.dev_pooling)
    assert max(encoder.tokenize(documents.targets).lengths) > settings.max_length, "premise"
    whole = score_held_out(encoder.functions("fp32"), documents)
    assert score == row["dev_found_first"] == whole.found_first
    assert row["dev_mrr10"] == whole.mrr10
    encoder.max_length = settings.max_length
    cut = score_held_out(encoder.functions("fp32"), documents)
    assert whole.ranks.tolist() != cut.ranks.tolist()


def test_a_dev_check_and_the_baseline_read_queries_as_queries(
    corpus, dev, queried_folder, tiny_settings, monkeypatch
):
    bare = {f"templates.{role}": None for role in ROLES}
    plain = {**bare, "dev": "own", "method.name": "simcse", "method.readout": "mean"}
    settings, documents = tiny_settings(queried_folder, plain), read_held_out(corpus, "dev")
    _, row, method = check(settings, dev.alone, queried_folder, monkeypatch)
    encode = method.sentence_encoder.functions("fp32")
    expected = score_held_out(encode, documents).mrr10
    assert row["dev_mrr10"] == expected
    assert score_untouched(queried_folder, dev.alone, "fp32").own["dev_mrr10"] == expected
    without_prompt = score_held_out(EncodeFunctions(encode.texts), documents).mrr10
    assert abs(expected - without_prompt) > 0.1, "premise"


def test_a_dev_check_reads_as_at_inference_or_as_released(bert_folder, tiny_settings, monkeypatch):
    """As `method.dev_reading` says."""
    templates = {"templates.anchor": "promptbert/anchor", "templates.negative": None}
    templates["templates.positive"] = "promptbert/positive"
    scores = {}
    for way in ("inference", "released"):
        changes = {"method.name": "promptbert", "method.dev_reading": way, **templates}
        settings, dev = tiny_settings(bert_folder, changes), {"pairs": dev_pairs(None, None)}
        scores[way], _, method = check(settings, dev, bert_folder, monkeypatch)
        reading = method.pooling
        if way == "released":
            reading = replace(reading, full_stop=False, denoise="position")
        encoder = SentenceEncoder(method.backbone, reading)
        expected = score_pairs(lambda s, e=encoder: e.encode(s, precision="fp32"), dev["pairs"])
        assert scores[way] == pytest.approx(expected.spearman, abs=1e-9)
    assert abs(scores["inference"] - scores["released"]) > 0.1


def test_two_workers_score_as_one(dev, monkeypatch):
    """Each encodes its share of the texts, and both have the score."""
    vectors = random_vectors()
    alone = score_dev(EncodeFunctions(vectors), dev.alone)
    here, meet = threading.local(), threading.Barrier(2)
    shares, found, asked = [None, None], [None, None], [[], []]

    def gather(value):
        shares[here.rank] = value
        meet.wait()
        everything = list(shares)
        meet.wait()
        return everything

    monkeypatch.setattr(distributed, "rank", lambda: here.rank)
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    monkeypatch.setattr(distributed, "gather_objects", gather)

    def run(rank):
        here.rank = rank

        def encode(texts):
            asked[rank].extend(texts)
            return vectors(texts)

        found[rank] = score_dev(
            EncodeFunctions(lambda t: distributed.encode_together(encode, t)), dev.alone
        )

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [alone, alone]
    assert not set(asked[0]) & set(asked[1])
    assert abs(len(asked[0]) - len(asked[1])) <= 1


def test_the_baseline_is_chosen_by_the_same_score(dev, bert_folder):
    found = score_untouched(bert_folder, dev.beside, "fp32")
    scores = score_dev(EncodeFunctions(found.open(bert_folder, "fp32")), dev.beside)
    spearman = scores.pop("dev_spearman.pairs.tsv")
    assert found.own == scores
    assert found.scores == pytest.approx({"pairs.tsv": spearman}, abs=1e-6)
    opened = [Baseline("", name, {}).open(bert_folder, "fp32") for name in NAMES]
    others = [score_dev(EncodeFunctions(one), dev.alone)["dev_found_first"] for one in opened]
    assert found.score == scores["dev_found_first"] == max(others)
    assert min(others) < max(others), "premise: the readings differ"
    assert found.entries == {
        "baseline": found.reading,
        "baseline_found_first": found.score,
        "baseline_mrr10": found.own["dev_mrr10"],
        "baseline_spearman.pairs.tsv": found.scores["pairs.tsv"],
    }


@pytest.fixture
def run(ray_here, own_store, bert_folder, corpus, tmp_path, capsys):
    """Run a job on the corpus: its folder, its result, and what it printed."""

    def job(name, *words, settings=("max_steps=2", "eval_every=1")):
        output = tmp_path / name
        line = training(bert_folder, corpus, output, *SETTINGS, *settings, job=words)
        assert main(line) == 0
        return output, result_of(output), capsys.readouterr()

    return job


@pytest.mark.ray_local
def test_the_command_chooses_by_them(run, own_store):
    settings = ("max_steps=4", "eval_every=1", "optimizer.learning_rate=1e-3")
    words = ("train", "quickstart", "--dev-pairs", str(BUILT_IN_PAIRS))
    output, result, shown = run("run", *words, settings=settings)
    rows = read_rows(output / "metrics.jsonl")
    best = rows[result["best_step"]]
    assert result["dev"] == "own documents"
    assert result["dev_found_first"] == max(rows[step]["dev_found_first"] for step in range(1, 5))
    for name in ("dev_found_first", "dev_mrr10", "dev_spearman.pairs.tsv"):
        assert result[name] == best[name]
    assert result["dev_found_first_before"] == rows[0]["dev_found_first"]
    assert result["dev_spearman_before.pairs.tsv"] == rows[0]["dev_spearman.pairs.tsv"]
    assert not {"dev_spearman", "baseline_spearman"} & {*result, *best}
    metrics = own_store.get_run(result["mlflow_run_id"]).data.metrics
    assert metrics["best_dev_found_first"] == result["dev_found_first"]
    assert metrics["baseline_found_first"] == result["baseline_found_first"]
    assert "dev_spearman.pairs.tsv" in metrics
    assert "dev_spearman" not in metrics
    assert "dev queries found first" in shown.err
    assert f"scores {result['dev_found_first']:.2f} % on dev (own documents): " in shown.out
    assert "dev queries found first in %" in (output / "report.html").read_text()
    card = (output / "model" / "README.md").read_text()
    assert "own documents, dev, % of the queries that find their document first (the step" in card
    assert "graded pairs, unless the name says otherwise." in card
