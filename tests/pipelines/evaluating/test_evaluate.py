"""cotbert evaluate on a SentEval folder and on pairs: scores, files, tracking and exit status."""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from graded_pairs import graded, write_pairs, write_stsb

from cotbert_core.errors import UserError
from cotbert_core.evaluation.pairs import EncodeFunctions, read_pairs, score_pairs
from cotbert_core.evaluation.sts import predict_sts, score_subsets
from cotbert_core.files import read_json, write_json
from cotbert_core.sentence_encoder import SentenceEncoder
from pipelines.cli import main
from pipelines.evaluating import evaluate as evaluate_job
from pipelines.evaluating import model_specs
from pipelines.evaluating.counting import EncodeCounter, read_splits
from pipelines.evaluating.evaluate import evaluate
from pipelines.evaluating.options import EvaluateOptions
from pipelines.evaluating.readout_options import open_readout
from pipelines.runtime.progress import say_once
from pipelines.training.baseline import score_untouched
from pipelines.training.dev_sets import BUILT_IN_PAIRS

SUBSETS = ("FNWN", "headlines", "OnWN")


@pytest.fixture(scope="module")
def senteval(tmp_path_factory):
    """STS13, STS-B and SICK-R of made pairs; the other tasks are missing."""
    folder = write_stsb(tmp_path_factory.mktemp("senteval"), graded(7))
    year, sick = folder / "STS/STS13-en-test", folder / "SICK"
    for place in (year, sick):
        place.mkdir(parents=True)
    for seed, name in enumerate(SUBSETS):
        rows = graded(seed)
        (year / f"STS.input.{name}.txt").write_text("".join(f"{a}\t{b}\n" for _, a, b in rows))
        (year / f"STS.gs.{name}.txt").write_text("".join(f"{g}\n" for g, *_ in rows))
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
    ends = ("low", "high")
    tasks = {task: entry for task, entry in result.items() if isinstance(entry, dict)}
    kept = {task: {k: v for k, v in e.items() if k not in ends} for task, e in tasks.items()}
    return kept | {key: result[key] for key in ("average",) if key in result}


def test_the_file_holds_the_scores_of_the_core(own_store, tmp_path, senteval, bert_folder, encode):
    out = tmp_path / "new" / "scores.json"
    command = ["evaluate", bert_folder, "--senteval", str(senteval), "--precision", "fp32"]
    assert main([*command, "--tasks", "STS13,sts-b,SICK-R", "--output", str(out)]) == 0
    written = read_json(out)
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
        for name in ("spearman", "mean", "wmean", "pairs", "low", "high"):
            assert metrics[f"{task}.{name}"] == pytest.approx(written[task][name])
        assert written[task]["low"] <= scores["spearman"] <= written[task]["high"]
    for subset, score in expected["STS13"]["subsets"].items():
        assert metrics[f"STS13.subsets.{subset}"] == pytest.approx(score)
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


def test_a_folder_with_an_int8_graph_is_scored_in_torch_which_a_note_says(
    unrecorded, tmp_path, bert_folder, capsys
):
    say_once.cache_clear()
    shutil.copytree(bert_folder, tmp_path / "fast")
    (tmp_path / "fast" / "int8").mkdir()
    pairs = ["--dev-pairs", str(write_pairs(tmp_path / "pairs.tsv", graded(3)))]
    assert main(["evaluate", bert_folder, "fast", *pairs]) == 0
    told = capsys.readouterr().err
    assert told.count("without its int8 graph") == 1
    assert "note: fast is scored in torch, without its int8 graph: what the graph costs" in told


def test_a_note_on_the_prompts_is_given_once_by_the_baseline_and_the_scores(
    unrecorded, tmp_path, bert_folder, capsys
):
    """`adapt` scores the untouched encoder for both."""
    say_once.cache_clear()
    shutil.copytree(bert_folder, tmp_path / "named")
    prompts = {"prompts": {"document": "document: "}, "default_prompt_name": None}
    write_json(tmp_path / "named" / "config_sentence_transformers.json", prompts)
    pairs, model = write_pairs(tmp_path / "pairs.tsv", graded(3)), str(tmp_path / "named")
    score_untouched(model, {"pairs": read_pairs(pairs)})
    evaluate(EvaluateOptions(model, pairs=pairs))
    assert capsys.readouterr().err.count("the encoder names others: document 'document: '") == 1


def test_a_task_named_twice_counts_once_and_pairs_may_be_added(
    unrecorded, tmp_path, senteval, bert_folder
):
    pairs = write_pairs(tmp_path / "pairs.tsv", graded(3))
    result = evaluate(EvaluateOptions(bert_folder, senteval, pairs, "STS-B,SICK-R,stsb"))
    tasks = [result[t]["spearman"] for t in ("STS-B", "SICK-R")]
    assert result["average"] == pytest.approx(np.mean(tasks))
    assert "pairs-all" in result


def test_pairs_of_ones_own(own_store, tmp_path, bert_folder, encode):
    path, out = write_pairs(tmp_path / "pairs.tsv", graded(3)), tmp_path / "scores.json"
    command = ["evaluate", bert_folder, "--dev-pairs", str(path), "--precision", "fp32"]
    assert main([*command, "--output", str(out)]) == 0
    expected, written = score_pairs(encode, read_pairs(path)), read_json(out)
    names = ("spearman", "alignment", "uniformity")
    entry = {name: pytest.approx(getattr(expected, name)) for name in names}
    assert scores_of(written) == {"pairs-all": {**entry, "pairs": 12}}
    metrics = own_store.get_run(written["mlflow_run_id"]).data.metrics
    assert metrics["pairs-all.spearman"] == pytest.approx(expected.spearman)


def test_without_data_the_built_in_pairs_are_scored(unrecorded, bert_folder, encode, capsys):
    assert main(["evaluate", bert_folder, "--precision", "fp32"]) == 0
    shown = dict(line.split()[:2] for line in capsys.readouterr().out.splitlines()[2:])
    expected = {half: score_pairs(encode, p) for half, p in read_splits(BUILT_IN_PAIRS).items()}
    assert shown == {f"pairs-{half}": f"{s.spearman:.2f}" for half, s in expected.items()}
    assert set(shown) == {"pairs-dev", "pairs-test"}


def test_scores_are_written_though_nobody_reads_the_table(
    own_store, tmp_path, bert_folder, monkeypatch
):
    """As with `cotbert evaluate MODEL --output FILE | head -1`."""

    def closed(*given):
        raise BrokenPipeError

    for name in ("print_scores", "print_differences"):
        monkeypatch.setattr(f"pipelines.commands.evaluate.{name}", closed)
    pairs = ["--dev-pairs", str(write_pairs(tmp_path / "pairs.tsv", graded(3)))]
    for count in (1, 2):
        monkeypatch.setattr(sys, "stderr", io.StringIO())  # which main closes
        out = tmp_path / f"{count}.json"
        models = [bert_folder, f"{bert_folder},readout=mean"][:count]
        assert main(["evaluate", *models, *pairs, "--precision", "fp32", "--output", str(out)]) == 1
        run = own_store.get_run(read_json(out)["mlflow_run_id"])
        assert run.info.status == "FINISHED"


def test_pairs_of_a_few_sentences_have_no_interval(unrecorded, tmp_path, bert_folder, capsys):
    """They are resampled by the sentence that they share."""
    rows = [f"{n % 4}\tquery {n % 5}\tdocument {n}" for n in range(40)]
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("\n".join(["score\tsentence1\tsentence2", *rows]))
    models = [bert_folder, f"{bert_folder},readout=mean"]
    assert main(["evaluate", *models, "--precision", "fp32", "--dev-pairs", str(pairs)]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert "of fewer than 6 documents, texts or pairs without a common sentence, too few" in last


def test_without_resamples_there_are_no_intervals(unrecorded, senteval, bert_folder):
    result = evaluate(EvaluateOptions(bert_folder, senteval, tasks="STS-B", resamples=0))
    assert list(result) == ["STS-B", "average", "sentences_per_second", "mlflow_run_id"]
    assert list(result["STS-B"]) == ["spearman", "mean", "wmean", "pairs", "subsets"]


def command(folder, senteval, *words):
    """Mean pooling and [CLS] of one encoder on two tasks."""
    models = [f"{folder},readout=last", f"{folder},readout=cls"]
    return ["evaluate", *models, "--senteval", str(senteval), "--tasks", "STS-B,SICK-R", *words]


def test_several_models_are_compared_with_the_first(
    own_store, tmp_path, senteval, bert_folder, capsys
):
    names = ("all.json", "page.html", "table.md")
    files = ["--output", names[0], "--report", names[1], "--report", names[2]]
    assert main(command(bert_folder, senteval, *files)) == 0
    shown, result = capsys.readouterr().out, read_json(tmp_path / "all.json")
    labels = list(result["models"])
    assert own_store.get_run(result["mlflow_run_id"]).info.run_name == "evaluate / all.json"
    assert result["against"] == labels[0]
    assert [label.rsplit("/")[-1] for label in labels] == ["bert0 last", "bert0 [CLS]"]
    (entries,) = result["differences"].values()
    assert list(entries) == ["STS-B", "SICK-R", "average"]
    for readout, label in zip(("last", "cls"), labels, strict=True):
        options = EvaluateOptions(bert_folder, senteval, tasks="STS-B,SICK-R", readout=readout)
        assert scores_of(result["models"][label]) == scores_of(evaluate(options))
    last, cls = (model["average"] for model in result["models"].values())
    assert entries["average"]["difference"] == pytest.approx(cls - last)
    assert entries["average"]["low"] < cls - last < entries["average"]["high"]
    page, table = ((tmp_path / name).read_text() for name in names[1:])
    assert all(result["verdicts"][0] in text for text in (shown, page, table))
    assert "<svg" in page
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


def test_equal_cosines_have_no_score(unrecorded, tmp_path, bert_folder, capsys):
    """An encoder that gives each text the same vector: said in words, null in the file."""
    encoder = SentenceEncoder.from_pretrained(bert_folder)
    norm = encoder.backbone.model.encoder.layer[-1].output.LayerNorm
    torch.nn.init.zeros_(norm.weight)
    torch.nn.init.ones_(norm.bias)
    flat, file, page = (tmp_path / name for name in ("flat", "scores.json", "scores.md"))
    encoder.save_pretrained(flat)
    words = ["--precision", "fp32", "--output", str(file), "--report", str(page)]
    assert main(["evaluate", str(flat), *words]) == 0
    captured = capsys.readouterr()
    assert "The score of pairs-dev, pairs-test is undefined: all cosines are equal." in captured.out
    assert "Warning" not in captured.err
    assert read_json(file)["pairs-dev"]["spearman"] is None
    assert page.read_text().count("| undefined |") == 2
    assert main(["evaluate", bert_folder, str(flat), "--precision", "fp32"]) == 0
    found = capsys.readouterr().out
    assert found.count("undefined\n") == 2
    assert found.count("cannot be compared") == 2
    assert "95 % interval" not in found, "a table without a number"


def test_a_model_and_itself_differ_by_nothing(unrecorded, senteval, bert_folder, capsys):
    command = ["evaluate", bert_folder, bert_folder, "--senteval", str(senteval)]
    assert main([*command, "--tasks", "STS-B"]) == 0
    printed = capsys.readouterr().out
    assert "have the same score, so nothing tells them apart, average Spearman" in printed
    assert "+0.00 to +0.00" not in printed, "pairs in one order do not make models equal"


@pytest.mark.parametrize(("count", "times"), [(2, 1), (3, 2)])
def test_two_models_are_opened_once(unrecorded, tmp_path, bert_folder, monkeypatch, count, times):
    """More do not fit in memory together: they are opened to be checked, and again to be scored."""
    opened = []

    def opening(options, sentences):
        opened.append(options.model)
        return open_readout(options, sentences)

    for module in (evaluate_job, model_specs):
        monkeypatch.setattr(module, "open_readout", opening)
    pairs = write_pairs(tmp_path / "pairs.tsv", graded(3))
    options = EvaluateOptions(bert_folder, pairs=pairs, resamples=100)
    evaluate_job.evaluate_several(count * [options])
    assert len(opened) == count * times


def test_queries_count_in_the_rate(monkeypatch):
    counter = EncodeCounter()
    both = EncodeFunctions(lambda t: np.ones((len(t), 2)), lambda t: np.zeros((len(t), 2)))
    encode = both.wrapped(counter.wrap)
    assert encode.texts(["a", "b"]).all()
    assert not encode.queries(["q"]).any()
    assert counter.sentences == 3
    assert EncodeFunctions(both.texts).wrapped(counter.wrap).queries is None


def test_the_splits_of_a_file_are_those_that_it_has(tmp_path, capsys):
    def read(*splits):
        lines = [f"{n}\tone {n}\ttwo\t{split}" for n, split in enumerate(splits)]
        path = tmp_path / "pairs.tsv"
        path.write_text("\n".join(["score\tsentence1\tsentence2\tsplit", *lines]))
        return {name: len(pairs) for name, pairs in read_splits(path).items()}

    assert read("dev", "test", "dev", "test") == {"dev": 2, "test": 2}
    assert capsys.readouterr().err == ""
    assert read("train", "test", "Test", "test", "train") == {"test": 2}
    assert "dev and test are left out: 2 'train', 1 'Test'" in capsys.readouterr().err
    with pytest.raises(UserError, match="rows of the splits 2 'train', and only dev and test are"):
        read("train", "train")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--resamples", "50"], "resamples is 50: give at least 100, or 0 for none"),
        (["--resamples", "0"], "resamples is 0 and 2 models are compared"),
        (["--report", "page.pdf"], "report 'page.pdf' ends in .pdf: give a file that ends in .ht"),
        (["--report", "a.md", "--report", "a.md"], "a file is given twice"),
        (["--output", "scores.json"], "scores.json' already exists: give a new file"),
        (["--readout", "mean"], "names its readout, and --readout is given too"),
    ],
)
def test_what_does_not_go_together_is_reported(
    unrecorded, senteval, bert_folder, capsys, words, message
):
    Path("scores.json").write_text("{}")
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
