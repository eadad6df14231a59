"""cotbert evaluate --corpus and cotbert geometry --corpus: the score on held-out documents."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from tiny_corpus import write_held_out
from trainings import ENDS, SUBJECTS

from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.evaluation.bootstrap import interval, resampled_mean, seed_of
from cotbert_core.evaluation.held_out import score_held_out
from cotbert_core.evaluation.pairs import EncodeFunctions
from cotbert_core.evaluation.searches import score_searches
from cotbert_core.files import read_json
from cotbert_core.readouts import build_features
from cotbert_core.readouts.whitening import Whitening
from cotbert_core.sentence_encoder import SentenceEncoder
from pipelines.cli import main
from pipelines.evaluating import geometry as geometry_module
from pipelines.evaluating.evaluate import evaluate
from pipelines.evaluating.options import EvaluateOptions
from pipelines.storage.held_out_file import read_held_out
from pipelines.training.dev_sets import BUILT_IN_PAIRS

QUERIES = [f"{s} is singing {e}" for s in SUBJECTS[:6] for e in ENDS]
TARGETS = [f"The price of oil rose , and {s} saw it {e}" for s in SUBJECTS[:6] for e in ENDS]


@pytest.fixture
def corpus(tmp_path):
    return write_held_out(tmp_path / "corpus", QUERIES, TARGETS)


def test_the_test_half_is_scored_with_intervals(own_store, corpus, bert_folder):
    result = evaluate(EvaluateOptions(bert_folder, corpus=corpus, precision="fp32"))
    encoder = SentenceEncoder.from_pretrained(bert_folder)
    found = score_held_out(encoder.functions("fp32"), read_held_out(corpus, "test"))
    ends = interval(resampled_mean(found.found, 1000, seed_of("held-out")))
    entry = {"found_first": found.found_first, "low": ends.low, "high": ends.high}
    assert result["held-out"] == {**entry, "queries": 12, "documents": 12, "targets": 24}
    assert result["held-out-mrr10"]["mrr10"] == found.mrr10 > found.found_first
    assert ends.low < found.found_first < ends.high
    assert not [name for name in result if name.startswith("pairs-")], "they were not asked for"
    metrics = own_store.get_run(result["mlflow_run_id"]).data.metrics
    assert metrics["held-out.found_first"] == found.found_first
    assert metrics["held-out-mrr10.low"] == result["held-out-mrr10"]["low"]
    assert metrics["held-out-keywords.found_first"] == result["held-out-keywords"]["found_first"]
    both = evaluate(EvaluateOptions(bert_folder, corpus=corpus, pairs=BUILT_IN_PAIRS, resamples=0))
    assert {"held-out", "held-out-mrr10", "pairs-dev", "pairs-test"} <= both.keys()
    assert "low" not in both["held-out"]


def test_several_models_are_compared_on_the_same_queries(
    unrecorded, corpus, bert_folder, tmp_path, capsys
):
    readouts = ("mean", "cls")
    command = ["evaluate", *(f"{bert_folder},readout={name}" for name in readouts)]
    command += ["--corpus", str(corpus), "--output", str(tmp_path / "all.json")]
    assert main([*command, "--report", str(tmp_path / "page.html"), "--precision", "fp32"]) == 0
    result = read_json(tmp_path / "all.json")
    (entries,) = result["differences"].values()
    assert list(entries) == ["held-out", "held-out-mrr10", "held-out-with-keywords"]
    first, second = result["models"].values()
    gap = second["held-out"]["found_first"] - first["held-out"]["found_first"]
    assert entries["held-out"]["difference"] == pytest.approx(gap)
    held_out = read_held_out(corpus, "test")
    encoders = (SentenceEncoder.from_pretrained(bert_folder, readout=name) for name in readouts)
    scores = [score_held_out(encoder.functions(), held_out) for encoder in encoders]
    mean, cls = (resampled_mean(one.found, 1000, seed_of("held-out")) for one in scores)
    (changed,) = result["changed_queries"].values()
    only = [(b.found > a.found).sum() for a, b in (scores, scores[::-1])]
    assert [changed["gained"], changed["lost"]] == only
    ends = interval(cls - mean)
    assert (entries["held-out"]["low"], entries["held-out"]["high"]) == (ends.low, ends.high)
    shown = capsys.readouterr().out
    assert "queries that find their held-out document first, in %." in shown
    page = (tmp_path / "page.html").read_text()
    assert "found first" in page
    assert "MRR@10" in page
    assert f"{only[0]} find their document first only after, and {only[1]} only before." in page
    for one in changed["examples"]:
        assert f"<td>{one['query']}</td><td>{one['document']}</td>" in page


def test_queries_get_their_own_prompt(unrecorded, corpus, queried_folder, tmp_path):
    """Whitened or not; by any other command too, which read the same vectors."""
    encoder = SentenceEncoder.from_pretrained(queried_folder)
    encode = encoder.functions("fp32")
    held_out, sample = read_held_out(corpus, "test"), [*TARGETS, *QUERIES]
    (tmp_path / "sample.txt").write_text("\n".join(sample))
    fitted = Whitening.fit(encode.texts(sample), 8)
    options = EvaluateOptions(queried_folder, corpus=corpus, precision="fp32")
    whitened = replace(options, whiten=str(tmp_path / "sample.txt"), whiten_dimensions=8)
    transforms = (lambda v: v), fitted.apply
    for given, transform in zip((options, whitened), transforms, strict=True):
        both = encode.wrapped(lambda plain, f=transform: lambda texts: f(plain(texts)))
        expected = score_held_out(both, held_out).mrr10
        assert evaluate(given)["held-out-mrr10"]["mrr10"] == pytest.approx(expected)
        without_prompt = score_held_out(EncodeFunctions(both.texts), held_out).mrr10
        assert abs(expected - without_prompt) > 0.1, "premise"
    words = ["geometry", queried_folder, "--precision", "fp32", "--output", str(tmp_path / "out")]
    assert main([*words, "--corpus", str(corpus), "--text-column", "target"]) == 0
    (model,) = read_json(tmp_path / "out" / "geometry.json")["models"]
    assert model["found_first"] == score_held_out(encode, held_out).found_first


def test_keyword_search_is_scored_beside_the_encoder(unrecorded, tmp_path, bert_folder, capsys):
    """Each query shares a word with its target that stands nowhere else."""
    targets = [f"number{n} {t}" for n, t in enumerate(TARGETS)]
    queries = [f"{q} number{n}" for n, q in enumerate(QUERIES)]
    corpus = write_held_out(tmp_path / "corpus", queries, targets)
    result = evaluate(EvaluateOptions(bert_folder, corpus=corpus, precision="fp32"))
    assert result["held-out-keywords"]["found_first"] == 100
    assert result["held-out"]["found_first"] < 50
    together = result["held-out-with-keywords"]["found_first"]
    assert together > result["held-out"]["found_first"] + 20
    held_out = read_held_out(corpus, "test")
    encode = SentenceEncoder.from_pretrained(bert_folder).functions()
    expected = score_searches(encode, held_out, read_held_out(corpus, "dev")).keywords
    assert together == expected.found_first
    assert result["held-out-with-keywords"]["keyword_weight"] == expected.keyword_weight
    assert main(["evaluate", bert_folder, "--corpus", str(corpus), "--precision", "fp32"]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split()[-1] == "keyword_weight"
    (row,) = (row.split() for row in rows if row.startswith("held-out-with-keywords"))
    assert float(row[-1]) == expected.keyword_weight


def test_without_dev_queries_keywords_have_the_default_weight(unrecorded, tmp_path, bert_folder):
    splits = ["test"] * len(QUERIES)
    corpus = write_held_out(tmp_path / "corpus", QUERIES, TARGETS, splits)
    result = evaluate(EvaluateOptions(bert_folder, corpus=corpus, precision="fp32"))
    assert result["held-out-with-keywords"]["keyword_weight"] == 0.3


def test_a_corpus_without_documents_is_refused(own_store, bert_folder, tmp_path, capsys):
    assert main(["evaluate", bert_folder, "--corpus", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "is no folder made by `cotbert prepare`: check its name" in line
    assert own_store.search_runs(["0", "1"]) == []


def test_geometry_has_a_column_more(unrecorded, corpus, bert_folder, tmp_path, monkeypatch, capsys):
    texts = SimpleNamespace(sentences=QUERIES, read=24, dropped={})
    monkeypatch.setattr(geometry_module, "read_texts", lambda *_: texts)
    command = ["geometry", f"{bert_folder},readout=cls", "--precision", "fp32", "--output"]
    assert main([*command, str(tmp_path / "plain")]) == 0
    plain = capsys.readouterr().out
    assert main([*command, str(tmp_path / "out"), "--corpus", str(corpus)]) == 0
    shown = capsys.readouterr().out
    assert "found first" not in plain
    features = build_features("cls", load_backbone(bert_folder), precision="fp32")
    expected = score_held_out(EncodeFunctions(features), read_held_out(corpus, "test")).found_first
    assert re.search(rf"{expected:.2f}\s*\n", shown)
    with_corpus, without = (
        read_json(tmp_path / name / "geometry.json")["models"][0] for name in ("out", "plain")
    )
    assert with_corpus["found_first"] == expected
    assert "found_first" not in without
