"""`dev: own`: the best step is chosen on a corpus's held-out documents."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tiny_corpus import write_corpus, write_held_out

from cotbert_core import SentenceEncoder
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.errors import UserError
from cotbert_core.evaluation import (
    HeldOut,
    Pairs,
    held_out_keywords,
    score_held_out,
    score_keywords,
    score_pairs,
)
from cotbert_core.methods import build_method
from cotbert_core.settings import TrainSettings
from cotbert_core.training import distributed
from pipelines.cli import main
from pipelines.commands.training import TrainingOptions
from pipelines.storage.held_out_file import has_held_out, read_held_out
from pipelines.training import worker
from pipelines.training.baseline import Baseline, score_untouched
from pipelines.training.dev_sets import (
    BUILT_IN_PAIRS,
    dev_digest,
    dev_metric,
    dev_name,
    dev_sets,
    keyword_score,
    score_dev,
    with_pairs,
)
from pipelines.training.metrics_log import MetricsLog, read_rows

SUBJECTS = ("A man", "Two dogs", "The children", "She", "Nobody", "A woman")
ENDS = ("on the stage.", "in the green field", "while they watch the ice.", "after the answer.")
QUERIES = [f"{s} is singing {e}" for s in SUBJECTS for e in ENDS]
# Longer than the 8 tokens to which the tests' settings cut a sentence of training.
TARGETS = [
    f"The price of oil rose , and {s} walks {e} {s} saw a penguin" for s in SUBJECTS for e in ENDS
]
OWN = TrainSettings(dev="own")


@pytest.fixture
def corpus(tmp_path, bert_folder) -> Path:
    texts = [f"{s} {v} {e}" for s in SUBJECTS for v in ("saw oil", "walks") for e in ENDS]
    folder = write_corpus(tmp_path / "corpus", bert_folder, texts, max_length=12)
    return write_held_out(folder, QUERIES, TARGETS)


def test_each_half_is_searched_among_the_targets_of_both(corpus):
    for half, rows in (("dev", range(12)), ("test", range(12, 24))):
        found = read_held_out(corpus, half)
        assert found.queries == [QUERIES[row] for row in rows]
        assert found.targets == TARGETS
        assert found.rows.tolist() == list(rows)


def test_a_corpus_without_held_out_documents_is_refused(tmp_path):
    assert not has_held_out(tmp_path)
    with pytest.raises(UserError, match="no held-out documents: prepare it with --hold-out"):
        read_held_out(tmp_path, "dev")
    with pytest.raises(UserError, match="dev is 'own' and there is no corpus"):
        dev_sets(OWN, None, None)
    write_held_out(tmp_path, QUERIES[:3], TARGETS[:3])
    assert len(read_held_out(tmp_path, "test")) == 2
    with pytest.raises(UserError, match=r"have 1 dev queries: at least 2 are needed"):
        read_held_out(tmp_path, "dev")
    (tmp_path / "held-out.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(UserError, match="is no file of held-out documents"):
        read_held_out(tmp_path, "dev")


def test_raw_text_is_refused_before_it_is_prepared(tmp_path):
    (tmp_path / "text.txt").write_text("One.\nTwo.\n")
    options = TrainingOptions(corpus=str(tmp_path / "text.txt"))
    with pytest.raises(UserError, match="no held-out documents: prepare it with --hold-out"):
        options.open_data(OWN, tmp_path / "out")


def test_graded_pairs_are_scored_beside_them_and_choose_nothing(corpus):
    alone, beside = dev_sets(OWN, None, None, corpus), dev_sets(OWN, None, BUILT_IN_PAIRS, corpus)
    draw = np.random.default_rng(0)
    table = {}

    def encode(texts):
        return np.array([table.setdefault(text, draw.normal(size=4)) for text in texts])

    scores = score_dev(encode, beside)
    found = score_held_out(encode, read_held_out(corpus, "dev"))
    (pairs,) = (one for one in beside.values() if isinstance(one, Pairs))
    assert scores == {
        "dev_found_first": found.found_first,
        "dev_mrr10": found.mrr10,
        "dev_spearman.pairs.tsv": score_pairs(encode, pairs).spearman,
    }
    assert score_dev(encode, alone) == {k: v for k, v in scores.items() if "spearman" not in k}
    assert dev_metric(beside).name == dev_metric(alone).name == "dev_found_first"
    assert dev_name(beside) == dev_name(alone) == "own documents"
    assert with_pairs({"dev": "own"}, beside) == {"dev": "own documents"}
    graded = dev_sets(TrainSettings(), None, BUILT_IN_PAIRS, corpus)
    assert dev_metric(graded).name == "dev_spearman"
    by_words = read_held_out(corpus, "dev")
    words = score_keywords(by_words, held_out_keywords(by_words)).found_first
    assert keyword_score(beside) == keyword_score(alone) == words
    assert keyword_score(graded) is None
    assert not any(isinstance(one, HeldOut) for one in graded.values())
    assert len({dev_digest(dev) for dev in (alone, beside, graded)}) == 3
    other = write_held_out(corpus, QUERIES, TARGETS[::-1])
    assert dev_digest(dev_sets(OWN, None, None, other)) != dev_digest(alone)


def test_a_dev_check_reads_whole_targets(corpus, bert_folder, tiny_settings, monkeypatch):
    """Longer ones than the sentences of training."""
    rows = []
    monkeypatch.setattr(worker, "log_metrics", lambda _, values: rows.append(values))
    settings = tiny_settings(bert_folder, {"dev": "own"})
    method = build_method(load_backbone(bert_folder), settings)
    dev = dev_sets(settings, None, None, corpus)
    score = worker._check(SimpleNamespace(method=method, settings=settings, dev=dev))
    one = read_held_out(corpus, "dev")
    whole = SentenceEncoder(method.backbone, method.dev_pooling)
    cut = SentenceEncoder(method.backbone, method.dev_pooling)
    cut.max_length = settings.max_length
    assert max(whole.tokenize(one.targets).lengths) > settings.max_length, "premise"
    found, short = (
        score_held_out(lambda t, e=encoder: e.encode(t, precision="fp32"), one)
        for encoder in (whole, cut)
    )
    assert score == rows[0]["dev_found_first"] == found.found_first
    assert rows[0]["dev_mrr10"] == found.mrr10
    assert found.ranks.tolist() != short.ranks.tolist()


def test_two_workers_score_as_one(corpus, monkeypatch):
    """Each encodes its share of the texts, and both have the score."""
    dev = dev_sets(OWN, None, None, corpus)
    draw = np.random.default_rng(0)
    table = {text: draw.normal(size=8) for text in (*QUERIES, *TARGETS)}
    alone = score_dev(lambda texts: np.array([table[t] for t in texts]), dev)
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
            return np.array([table[text] for text in texts])

        found[rank] = score_dev(lambda texts: distributed.encode_together(encode, texts), dev)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [alone, alone]
    assert not set(asked[0]) & set(asked[1])
    assert abs(len(asked[0]) - len(asked[1])) <= 1


def test_the_baseline_is_chosen_by_the_same_score(corpus, bert_folder):
    dev = dev_sets(OWN, None, BUILT_IN_PAIRS, corpus)
    found = score_untouched(bert_folder, dev, "fp32")
    encode = found.open(bert_folder, "fp32")
    scores = score_dev(encode, dev)
    assert found.own == {name: scores[name] for name in ("dev_found_first", "dev_mrr10")}
    assert found.scores == pytest.approx({"pairs.tsv": scores["dev_spearman.pairs.tsv"]}, abs=1e-6)
    assert found.score == scores["dev_found_first"]
    others = [
        score_dev(Baseline("", readout, {}).open(bert_folder, "fp32"), dev)["dev_found_first"]
        for readout in ("last", "first-last", "cls")
    ]
    assert found.score == max(others) > min(others), "premise: the readings differ"
    assert found.entries == {
        "baseline": found.reading,
        "baseline_found_first": found.score,
        "baseline_mrr10": found.own["dev_mrr10"],
        "baseline_spearman.pairs.tsv": found.scores["pairs.tsv"],
    }


@pytest.mark.ray_local
def test_the_command_chooses_by_them(ray_here, own_store, bert_folder, corpus, tmp_path, capsys):
    sets = ("batch_size=8", "max_steps=4", "eval_every=1", "precision=fp32", "max_length=12")
    command = ["train", "quickstart", "--encoder", bert_folder, "--corpus", str(corpus)]
    command += ["--dev-pairs", str(BUILT_IN_PAIRS), "--output", str(tmp_path / "run")]
    for item in (*sets, "workers=1", "dev=own", "optimizer.learning_rate=1e-3"):
        command += ["--set", item]
    assert main(command) == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    rows = read_rows(tmp_path / "run" / "metrics.jsonl")
    scores = {step: rows[step]["dev_found_first"] for step in range(5)}
    assert result["dev"] == "own documents"
    assert result["dev_found_first_before"] == scores[0]
    assert result["dev_found_first"] == max(scores[step] for step in range(1, 5))
    best = rows[result["best_step"]]
    assert scores[result["best_step"]] == result["dev_found_first"]
    assert result["dev_mrr10"] == best["dev_mrr10"]
    assert result["dev_spearman.pairs.tsv"] == best["dev_spearman.pairs.tsv"]
    assert result["dev_spearman_before.pairs.tsv"] == rows[0]["dev_spearman.pairs.tsv"]
    assert not {"dev_spearman", "baseline_spearman"} & {*result, *best}
    metrics = own_store.get_run(result["mlflow_run_id"]).data.metrics
    assert metrics["best_dev_found_first"] == result["dev_found_first"]
    assert metrics["baseline_found_first"] == result["baseline_found_first"]
    assert "dev_spearman.pairs.tsv" in metrics
    assert "dev_spearman" not in metrics
    shown = capsys.readouterr()
    assert "dev queries found first" in shown.err
    assert f"scores {result['dev_found_first']:.2f} on dev (own documents): " in shown.out
    assert "dev queries found first in %" in (tmp_path / "run" / "report.html").read_text()
    card = (tmp_path / "run" / "model" / "README.md").read_text()
    assert "own documents, % of the queries that find their document first (the step was" in card
    assert "graded pairs, unless the name says otherwise." in card
    assert MetricsLog(rows, 8).last_step == 4


SMALL = ("batch_size=8", "max_steps=2", "eval_every=1", "precision=fp32", "max_length=12")


def small_run(*words, corpus, encoder, output):
    command = [*words, "--corpus", str(corpus), "--encoder", encoder, "--output", str(output)]
    return [
        *command,
        *(part for item in (*SMALL, "workers=1", "dev=own") for part in ("--set", item)),
    ]


@pytest.mark.ray_local
def test_a_sweep_stops_and_chooses_by_them(
    ray_here, own_store, bert_folder, corpus, rates, tmp_path, capsys
):
    output = tmp_path / "sweep"
    words = ("tune", str(rates), "--asha", "1")
    assert main(small_run(*words, corpus=corpus, encoder=bert_folder, output=output)) == 0
    result = json.loads((output / "result.json").read_text())
    finished = [t for t in result["trials"] if t["status"] == "finished"]
    assert result["dev_found_first"] == max(t["dev_found_first"] for t in finished)
    for trial in finished:
        rows = read_rows(output / "trials" / trial["name"] / "metrics.jsonl")
        assert trial["dev_found_first"] == max(
            rows[s]["dev_found_first"] for s in (1, 2) if s in rows
        )
    metrics = own_store.get_run(result["mlflow_parent_run_id"]).data.metrics
    assert metrics["dev_found_first"] == result["dev_found_first"]
    assert not any("spearman" in name for name in (*result, *metrics))
    shown = capsys.readouterr().out
    assert "baseline_found_first" in shown
    assert f"scores {result['dev_found_first']:.2f} on dev (own documents): " in shown


@pytest.mark.ray_local
def test_a_comparison_and_several_seeds_are_scored_by_them(
    ray_here, own_store, bert_folder, corpus, tmp_path, capsys
):
    output = tmp_path / "compared"
    words = ("compare", "simcse-base", "last", "--seeds", "2")
    assert main(small_run(*words, corpus=corpus, encoder=bert_folder, output=output)) == 0
    result = json.loads((output / "result.json").read_text())
    trained, last, untouched = result["rows"]
    seeds = [
        json.loads((output / "simcse-base" / f"seed-{seed}" / "result.json").read_text())
        for seed in (0, 1)
    ]
    assert trained["dev"] == [one["dev_found_first"] for one in seeds]
    expected = score_dev(
        Baseline("", "last", {}).open(bert_folder, "fp32"), dev_sets(OWN, None, None, corpus)
    )
    assert last["dev"] == [expected["dev_found_first"]]
    assert untouched["dev"] == [seeds[0]["baseline_found_first"]]
    assert (result["dev"], result["metric"]) == ("own documents", "dev_found_first")
    assert "on dev (own documents): " in capsys.readouterr().out
    metrics = own_store.get_run(result["mlflow_run_id"]).data.metrics
    assert metrics["dev_found_first.simcse-base"] == pytest.approx(trained["dev_mean"])

    words = ("train", "simcse-base", "--seeds", "2")
    folder = tmp_path / "seeds"
    assert main(small_run(*words, corpus=corpus, encoder=bert_folder, output=folder)) == 0
    both = json.loads((folder / "result.json").read_text())
    assert both["dev_found_first_mean"] == pytest.approx(trained["dev_mean"])
    assert "the mean of 2 seeds scores" in capsys.readouterr().out.replace("The mean", "the mean")
