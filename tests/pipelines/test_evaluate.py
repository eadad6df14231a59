"""cotbert evaluate on a SentEval folder and on pairs: scores, files, tracking and exit status."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cotbert_core.evaluation import read_pairs, score_pairs
from cotbert_core.evaluation.sts import predict_sts, score_subsets
from cotbert_core.sentence_encoder import SentenceEncoder
from pipelines.cli import main
from pipelines.evaluate import evaluate
from pipelines.evaluating.counting import read_splits
from pipelines.evaluating.options import EvaluateOptions
from pipelines.training.dev_sets import BUILT_IN_PAIRS

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
    """Without what is no score, and without intervals."""
    ends = ("low", "high", "subset_intervals")
    tasks = {task: entry for task, entry in result.items() if isinstance(entry, dict)}
    kept = {task: {k: v for k, v in e.items() if k not in ends} for task, e in tasks.items()}
    return kept | {key: result[key] for key in ("average",) if key in result}


HERE = "STS13,sts-b,SICK-R"


def test_the_file_holds_the_scores_of_the_core(own_store, tmp_path, senteval, bert_folder, encode):
    out = tmp_path / "new" / "scores.json"
    command = ["evaluate", bert_folder, "--senteval", str(senteval), "--tasks", HERE]
    assert main([*command, "--precision", "fp32", "--output", str(out)]) == 0
    written = json.loads(out.read_text())
    predicted = predict_sts(encode, senteval, ["STS13", "STS-B", "SICK-R"])
    expected = {task: score_subsets(subsets) for task, subsets in predicted.items()}
    average = np.mean([task["spearman"] for task in expected.values()])
    assert scores_of(written) == {**expected, "average": pytest.approx(average)}
    assert expected["STS13"]["pairs"] == 36
    assert written["sentences_per_second"] > 0

    run = own_store.get_run(written["mlflow_run_id"])
    assert run.info.run_name.startswith("evaluate / ")
    assert (Path(run.info.run_name).name, run.info.status) == ("bert0 mean", "FINISHED")
    metrics = run.data.metrics
    assert metrics["average"] == pytest.approx(average)
    for task, scores in expected.items():
        for name in ("spearman", "mean", "wmean", "pairs"):
            assert metrics[f"{task}.{name}"] == pytest.approx(scores[name])
        for name in ("low", "high"):
            assert metrics[f"{task}.{name}"] == pytest.approx(written[task][name])
        assert written[task]["low"] <= scores["spearman"] <= written[task]["high"]
    for subset, score in expected["STS13"]["subsets"].items():
        assert metrics[f"STS13.subsets.{subset}"] == pytest.approx(score)
        low, high = written["STS13"]["subset_intervals"][subset]
        assert low < score < high
    assert run.data.params["model"] == bert_folder
    assert [a.path for a in own_store.list_artifacts(run.info.run_id)] == ["scores.json"]


def test_missing_tasks_are_named(unrecorded, tmp_path, senteval, bert_folder, capsys):
    out = tmp_path / "scores.json"
    command = ["evaluate", bert_folder, "--senteval", str(senteval), "--output", str(out)]
    assert main(command) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "lacks STS12, STS14, STS15, STS16: add STS/STS12-en-test" in line
    assert not out.exists()


def test_the_tasks_that_are_there_may_be_averaged(unrecorded, senteval, bert_folder, capsys):
    command = ["evaluate", bert_folder, "--senteval", str(senteval), "--allow-missing"]
    assert main(command) == 0
    captured = capsys.readouterr()
    assert "warning: skipped STS12, STS14, STS15, STS16" in captured.err
    rows = dict(line.split()[:2] for line in captured.out.splitlines()[2:])
    assert list(rows) == ["STS13", "STS-B", "SICK-R", "average"]
    *tasks, average = (float(value) for value in rows.values())
    assert average == pytest.approx(np.mean(tasks), abs=0.011)


def test_a_task_named_twice_counts_once(unrecorded, senteval, bert_folder):
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


def test_without_data_the_built_in_pairs_are_scored(unrecorded, bert_folder, encode, capsys):
    assert main(["evaluate", bert_folder, "--precision", "fp32"]) == 0
    shown = dict(line.split()[:2] for line in capsys.readouterr().out.splitlines()[2:])
    expected = {half: score_pairs(encode, p) for half, p in read_splits(BUILT_IN_PAIRS).items()}
    assert shown == {f"pairs-{half}": f"{s.spearman:.2f}" for half, s in expected.items()}
    assert set(shown) == {"pairs-dev", "pairs-test"}


def test_pairs_may_be_added_to_tasks(unrecorded, senteval, bert_folder):
    options = EvaluateOptions(bert_folder, senteval, BUILT_IN_PAIRS, "STS-B")
    assert {"STS-B", "average", "pairs-dev", "pairs-test"} <= set(evaluate(options))


def test_another_reading_gives_other_scores(unrecorded, senteval, bert_folder):
    own, mask, cls = (
        evaluate(EvaluateOptions(bert_folder, senteval, None, "STS-B", **how))["average"]
        for how in ({}, {"template": "cot-bert/anchor"}, {"readout": "cls"})
    )
    assert len({own, mask, cls}) == 3


def test_a_broken_task_fails_with_its_file_named(unrecorded, tmp_path, bert_folder, capsys):
    (tmp_path / "STS" / "STSBenchmark").mkdir(parents=True)
    command = ["evaluate", bert_folder, "--senteval", str(tmp_path), "--tasks", "STS-B"]
    assert main(command) == 2
    assert "sts-test.csv' does not exist" in capsys.readouterr().err


def test_without_resamples_there_are_no_intervals(own_store, senteval, bert_folder):
    result = evaluate(EvaluateOptions(bert_folder, senteval, tasks="STS-B", resamples=0))
    kept = ["STS-B", "average", "sentences_per_second", "mlflow_run_id"]
    assert list(result) == kept
    assert list(result["STS-B"]) == ["spearman", "mean", "wmean", "pairs", "subsets"]


def command(folder, senteval, *words):
    """Mean pooling and [CLS] of one encoder on two tasks."""
    models = [f"{folder},readout=last", f"{folder},readout=cls"]
    return ["evaluate", *models, "--senteval", str(senteval), "--tasks", "STS-B,SICK-R", *words]


def test_several_models_are_compared_with_the_first(
    own_store, tmp_path, senteval, bert_folder, capsys
):
    names = ("all.json", "page.html", "table.md")
    files = [option for name in names for option in ("--report", name)]
    files[0] = "--output"
    assert main(command(bert_folder, senteval, *files)) == 0
    shown = capsys.readouterr().out
    result = json.loads((tmp_path / "all.json").read_text())
    labels = list(result["models"])
    assert own_store.get_run(result["mlflow_run_id"]).info.run_name == "evaluate / all.json"
    assert result["against"] == labels[0]
    assert [label.rsplit("/")[-1] for label in labels] == ["bert0 last", "bert0 [CLS]"]
    (entries,) = result["differences"].values()
    assert list(entries) == ["STS-B", "SICK-R", "average"]
    one = {}
    for readout, label in zip(("last", "cls"), labels, strict=True):
        options = EvaluateOptions(bert_folder, senteval, tasks="STS-B,SICK-R", readout=readout)
        one[readout] = scores_of(evaluate(options))
        assert scores_of(result["models"][label]) == one[readout]
    gap = one["cls"]["average"] - one["last"]["average"]
    average = entries["average"]
    assert average["difference"] == pytest.approx(gap)
    assert average["low"] < gap < average["high"]
    assert (verdict := result["verdicts"][0]) in shown
    assert verdict in (tmp_path / "page.html").read_text()
    assert verdict in (tmp_path / "table.md").read_text()
    assert "<svg" in (tmp_path / "page.html").read_text()
    _check_runs(own_store, result, names)


def _check_runs(store, result, names):
    """A run for the comparison, beneath it one for each model."""
    whole = store.get_run(result["mlflow_run_id"])
    (label,) = result["differences"]
    key = f"average.difference/{label.replace('[', '').replace(']', '')}"
    found = result["differences"][label]["average"]["difference"]
    assert whole.data.metrics[key] == pytest.approx(found)
    assert {a.path for a in store.list_artifacts(whole.info.run_id)} == set(names)
    for model in result["models"].values():
        run = store.get_run(model["mlflow_run_id"])
        assert run.data.tags["mlflow.parentRunId"] == whole.info.run_id
        assert run.data.metrics["average"] == pytest.approx(model["average"])


def test_a_model_and_itself_differ_by_nothing(unrecorded, senteval, bert_folder, capsys):
    command = ["evaluate", bert_folder, bert_folder, "--senteval", str(senteval)]
    assert main([*command, "--tasks", "STS-B"]) == 0
    assert "is within chance: +0.00 (+0.00 to +0.00)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--resamples", "50"], "resamples is 50: give at least 100, or 0 for none"),
        (["--resamples", "0"], "resamples is 0 and 2 models are compared"),
        (["--report", "page.pdf"], "report 'page.pdf' ends in .pdf: give a file that ends in .ht"),
        (["--report", "a.md", "--report", "a.md"], "a file is given twice"),
        (["--readout", "mean"], "names its readout, and --readout is given too"),
    ],
)
def test_what_does_not_go_together_is_reported(
    unrecorded, senteval, bert_folder, capsys, words, message
):
    assert main(command(bert_folder, senteval, *words)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_a_model_that_cannot_be_read_stops_the_job_before_the_first(
    own_store, senteval, bert_folder, capsys
):
    command = ["evaluate", bert_folder, "nowhere/model", "--senteval", str(senteval)]
    assert main([*command, "--tasks", "STS-B"]) == 2
    assert "evaluate" not in capsys.readouterr().err.replace("cotbert evaluate", "")
    assert own_store.search_runs(["0", "1"]) == []
