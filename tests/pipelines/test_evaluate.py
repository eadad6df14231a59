"""cotbert evaluate on a SentEval folder and on pairs: scores, files, tracking and exit status."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cotbert_core.encoder import SentenceEncoder
from cotbert_core.evaluation import evaluate_sts, read_pairs, score_pairs
from pipelines.cli import main
from pipelines.dev import BUILT_IN_PAIRS
from pipelines.evaluate import evaluate, score_splits
from pipelines.evaluate_options import EvaluateOptions

WORDS = ("man", "dog", "penguin", "woman", "stage", "field", "price", "oil", "song", "line")
SUBSETS = ("FNWN", "headlines", "OnWN")


def graded(seed, count=12):
    """(score, sentence1, sentence2): the more words are shared, the higher the score."""
    draw = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        left = draw.choice(WORDS, 5, replace=False)
        right = np.concatenate([left[: number % 6], draw.choice(WORDS, 5 - number % 6)])
        rows.append((float(number % 6), " ".join(left), " ".join(right)))
    return rows


@pytest.fixture(scope="module")
def senteval(tmp_path_factory):
    """STS13, STS-B and SICK-R of made pairs; the other tasks are missing."""
    folder = tmp_path_factory.mktemp("senteval")
    year, stsb, sick = (folder / p for p in ("STS/STS13-en-test", "STS/STSBenchmark", "SICK"))
    for place in (year, stsb, sick):
        place.mkdir(parents=True)
    for seed, name in enumerate(SUBSETS):
        rows = graded(seed)
        (year / f"STS.input.{name}.txt").write_text("".join(f"{a}\t{b}\n" for _, a, b in rows))
        (year / f"STS.gs.{name}.txt").write_text("".join(f"{g}\n" for g, *_ in rows))
    lines = [f"main\tx\t2015\t{n}\t{g}\t{a}\t{b}\n" for n, (g, a, b) in enumerate(graded(7))]
    (stsb / "sts-test.csv").write_text("".join(lines))
    head = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment\n"
    lines = [f"{n}\t{a}\t{b}\t{g}\tNEUTRAL\n" for n, (g, a, b) in enumerate(graded(8))]
    (sick / "SICK_test_annotated.txt").write_text(head + "".join(lines))
    return folder


@pytest.fixture
def encode(bert_folder):
    encoder = SentenceEncoder.from_pretrained(bert_folder)
    return lambda texts: encoder.encode(texts, precision="fp32")


def scores_of(result):
    return {k: v for k, v in result.items() if k not in ("sentences_per_second", "mlflow_run_id")}


HERE = "STS13,sts-b,SICK-R"


def test_the_file_holds_what_evaluate_sts_gives(own_store, tmp_path, senteval, bert_folder, encode):
    out = tmp_path / "new" / "scores.json"
    command = ["evaluate", bert_folder, "--senteval", str(senteval), "--tasks", HERE]
    assert main([*command, "--precision", "fp32", "--output", str(out)]) == 0
    written = json.loads(out.read_text())
    expected = evaluate_sts(encode, senteval, ["STS13", "STS-B", "SICK-R"])
    average = np.mean([task["spearman"] for task in expected.values()])
    assert scores_of(written) == {**expected, "average": pytest.approx(average)}
    assert expected["STS13"]["pairs"] == 36
    assert written["sentences_per_second"] > 0

    run = own_store.get_run(written["mlflow_run_id"])
    assert (run.info.run_name, run.info.status) == ("evaluate", "FINISHED")
    metrics = run.data.metrics
    assert metrics["average"] == pytest.approx(average)
    for task, scores in expected.items():
        for name in ("spearman", "mean", "wmean", "pairs"):
            assert metrics[f"{task}.{name}"] == pytest.approx(scores[name])
    assert run.data.params["model"] == bert_folder
    assert [a.path for a in own_store.list_artifacts(run.info.run_id)] == ["scores.json"]


def test_missing_tasks_are_named(own_store, tmp_path, senteval, bert_folder, capsys):
    out = tmp_path / "scores.json"
    command = ["evaluate", bert_folder, "--senteval", str(senteval), "--output", str(out)]
    assert main(command) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "lacks STS12, STS14, STS15, STS16: add STS/STS12-en-test" in line
    assert not out.exists()


def test_the_tasks_that_are_there_may_be_averaged(own_store, senteval, bert_folder, capsys):
    command = ["evaluate", bert_folder, "--senteval", str(senteval), "--allow-missing"]
    assert main(command) == 0
    told = capsys.readouterr()
    assert "warning: skipped STS12, STS14, STS15, STS16" in told.err
    rows = dict(line.split()[:2] for line in told.out.splitlines()[2:])
    assert list(rows) == ["STS13", "STS-B", "SICK-R", "average"]
    *tasks, average = (float(value) for value in rows.values())
    assert average == pytest.approx(np.mean(tasks), abs=0.011)


def test_a_task_named_twice_counts_once(own_store, senteval, bert_folder):
    named = EvaluateOptions(bert_folder, senteval, tasks="STS-B,SICK-R,stsb")
    result = evaluate(named)
    tasks = [result[t]["spearman"] for t in ("STS-B", "SICK-R")]
    assert result["average"] == pytest.approx(np.mean(tasks))


def test_pairs_of_ones_own(own_store, tmp_path, bert_folder, encode):
    path = tmp_path / "pairs.tsv"
    rows = "".join(f"{g}\t{a}\t{b}\n" for g, a, b in graded(3))
    path.write_text("score\tsentence1\tsentence2\n" + rows)
    out = tmp_path / "scores.json"
    command = ["evaluate", bert_folder, "--dev-pairs", str(path), "--precision", "fp32"]
    assert main([*command, "--output", str(out)]) == 0
    expected = score_pairs(encode, read_pairs(path))
    written = json.loads(out.read_text())
    assert scores_of(written) == {
        "pairs-all": {
            "spearman": pytest.approx(expected.spearman),
            "alignment": pytest.approx(expected.alignment),
            "uniformity": pytest.approx(expected.uniformity),
            "pairs": 12,
        }
    }
    metrics = own_store.get_run(written["mlflow_run_id"]).data.metrics
    assert metrics["pairs-all.spearman"] == pytest.approx(expected.spearman)


def test_without_data_the_built_in_pairs_are_scored(own_store, bert_folder, encode, capsys):
    assert main(["evaluate", bert_folder, "--precision", "fp32"]) == 0
    shown = dict(line.split()[:2] for line in capsys.readouterr().out.splitlines()[2:])
    expected = score_splits(encode, BUILT_IN_PAIRS)
    assert shown == {f"pairs-{half}": f"{s.spearman:.2f}" for half, s in expected.items()}
    assert set(shown) == {"pairs-dev", "pairs-test"}


def test_pairs_may_be_added_to_tasks(own_store, senteval, bert_folder):
    options = EvaluateOptions(bert_folder, senteval, BUILT_IN_PAIRS, "STS-B")
    assert {"STS-B", "average", "pairs-dev", "pairs-test"} <= set(evaluate(options))


def test_another_reading_gives_other_scores(own_store, senteval, bert_folder):
    own, mask, cls = (
        evaluate(EvaluateOptions(bert_folder, senteval, None, "STS-B", **how))["average"]
        for how in ({}, {"template": "cot-bert/anchor"}, {"readout": "cls"})
    )
    assert len({own, mask, cls}) == 3


def test_a_broken_task_fails_with_its_file_named(own_store, tmp_path, bert_folder, capsys):
    (tmp_path / "STS" / "STSBenchmark").mkdir(parents=True)
    command = ["evaluate", bert_folder, "--senteval", str(tmp_path), "--tasks", "STS-B"]
    assert main(command) == 2
    assert "sts-test.csv' does not exist" in capsys.readouterr().err
