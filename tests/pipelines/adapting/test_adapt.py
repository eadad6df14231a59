"""cotbert adapt as a user runs it, killed and continued; several checks read one adaptation."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess

import forked
import numpy as np
import pytest
from process_tree import kill_first
from safetensors.torch import load_file
from waiting import until

from cotbert_core.sentence_encoder import SentenceEncoder
from pipelines.storage.corpus import Corpus
from pipelines.training.metrics_log import read_rows

pytestmark = pytest.mark.ray_local

WORDS = (
    *("man", "dog", "dogs", "children", "penguin", "ice", "stage", "field", "woman", "song"),
    *("price", "oil", "guitar", "green", "watch", "answer", "running", "playing", "frogs"),
)
DOCUMENTS = 160


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with documents, each of which has its own few words."""
    folder, draw = tmp_path_factory.mktemp("adapt"), random.Random(0)
    rows = []
    for _ in range(DOCUMENTS):
        own = draw.sample(WORDS, 4)
        sentences = (" ".join(draw.choices(own, k=7)).capitalize() for _ in range(4))
        rows.append(json.dumps({"text": ". ".join(sentences) + "."}))
    (folder / "documents.jsonl").write_text("\n".join(rows))
    return folder


def command(encoder, output):
    return [
        *("adapt", "documents.jsonl", "--split", "en", "--encoder", encoder),
        *("--candidates", "denosent-rest,simcse", "--steps", "6", "--batch-size", "8"),
        *("--learning-rate", "3e-3", "--output", output),
    ]


def where(home):
    """The folder and the environment of a command."""
    store = f"sqlite:///{home / 'mlflow.db'}"
    return {"cwd": home, "env": {**os.environ, "MLFLOW_TRACKING_URI": store}}


@pytest.fixture(scope="module")
def adapted(home, bert_folder):
    job = forked.run(*command(bert_folder, "out"), **where(home))
    assert job.returncode == 0, job.stderr
    return home / "out", job


def test_the_result_compares_test_queries_with_the_untouched_encoder(adapted):
    output, job = adapted
    result = json.loads((output / "result.json").read_text())
    held_out = result["documents"]["held_out"]
    assert held_out == DOCUMENTS // 10
    assert result["baseline"] in ("mean pooling", "[CLS] vector"), "a folder can name both"
    own = result["table"]["held-out"]
    assert own["after"] - own["before"] == pytest.approx(own.get("difference", 0.0))
    assert result["dev"][result["winner"]] == max(result["dev"].values())
    changed = result["changed_queries"] or {"gained": 0, "lost": 0, "examples": []}
    queries = result["models"]["untouched"]["held-out"]["queries"]
    gained = 100 * (changed["gained"] - changed["lost"]) / queries
    assert own["after"] - own["before"] == pytest.approx(gained)
    page = (output / "report.html").read_text()
    for one in changed["examples"]:
        assert f"<td>{one['query']}</td><td>{one['document']}</td>" in page
    tested = {name: scores["held-out"]["found_first"] for name, scores in result["models"].items()}
    assert tested[result["chosen"]] == max(tested["untouched"], tested[result["winner"]])
    assert ("merged" in tested) == (result["winner"] != "untouched")
    assert {row["name"] for row in result["trials"]} == {"denosent-rest", "simcse"}
    rows = read_rows(output / "trials" / "denosent-rest" / "metrics.jsonl")
    assert min(rows) == 1, "the baseline is not scored again"
    # Each of the four sentences of a document is a query.
    assert result["documents"]["queries"] == 4 * held_out
    assert result["models"]["untouched"]["held-out"]["queries"] == 4 * held_out // 2
    assert "own documents, found first in %" in job.stdout
    (baseline,) = (line for line in job.stderr.splitlines() if line.startswith("baseline: "))
    assert "(own documents), keyword search (BM25) " in baseline
    assert "out/report.html" in job.stdout
    assert "Traceback" not in job.stderr
    page = (output / "report.html").read_text()
    assert "What was gained" in page
    assert 'src="' not in page


def test_the_model_opens_elsewhere_with_equal_vectors(adapted):
    from sentence_transformers import SentenceTransformer

    output, _ = adapted
    texts = ["A man is playing", "Two dogs"]
    ours = SentenceEncoder.from_pretrained(output / "model").encode(texts, precision="fp32")
    theirs = SentenceTransformer(str(output / "model"), device="cpu").encode(texts)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_every_stage_is_a_child_of_the_adaptation_in_mlflow(adapted, home):
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{home / 'mlflow.db'}")
    runs = client.search_runs([client.get_experiment_by_name("cotbert").experiment_id])
    (parent,) = (one for one in runs if one.data.tags["job"] == "adapt")
    children = [r for r in runs if r.data.tags.get("mlflow.parentRunId") == parent.info.run_id]
    assert sorted(one.data.tags["job"] for one in children)[-2:] == ["train", "train"]
    assert {"prepare", "evaluate"} <= {one.data.tags["job"] for one in children}
    assert parent.data.tags["chosen"]
    (used,) = parent.inputs.dataset_inputs
    assert used.dataset.digest == Corpus.open(home / "out" / "corpus").digest


def test_a_finished_adaptation_is_not_overwritten(adapted, home, bert_folder):
    job = forked.run(*command(bert_folder, "out"), **where(home))
    assert (job.returncode, job.stderr.count("\n")) == (2, 1), job.stderr
    assert "is finished: give a new folder" in job.stderr


def test_documents_that_will_not_do_leave_nothing(home, bert_folder):
    job = forked.run(*command(bert_folder, "refused"), "--hold-out", "500", **where(home))
    assert job.returncode == 2
    assert "hold out at most a tenth, 16" in job.stderr
    assert not (home / "refused").exists()


def test_single_sentences_are_adapted_to_without_documents(home, bert_folder):
    """A sentence a line; the halves of the long ones must find each other. A third are so long that
    a note doubts that they are sentences."""
    draw = random.Random(1)
    lines = (" ".join(draw.choices(WORDS, k=14 if n % 3 else 70)) + "." for n in range(120))
    (home / "sentences.txt").write_text("\n".join(lines))
    words = (*("adapt", "sentences.txt", "--encoder", bert_folder), *("--candidates", "simcse"))
    budget = ("--steps", "2", "--batch-size", "8", "--output", "sentences")
    job = forked.run(*words, *budget, **where(home))
    assert job.returncode == 0, job.stderr
    result = json.loads((home / "sentences" / "result.json").read_text())
    assert result["documents"] == {"by": "none", "held_out": 12}
    assert result["sentences"] == 120 - 12
    assert "own sentences, found first in %" in job.stdout
    assert "eyword" not in job.stdout
    page = (home / "sentences" / "report.html").read_text()
    assert "The second half of each held-out sentence is searched" in page
    (note,) = result["notes"]
    assert "rows have more than 64 tokens" in note
    assert f"note: {note}\n" in job.stderr
    assert f"Note: {note.partition(':')[0]}" in page


def test_labels_choose_the_step_and_the_encoder_and_their_other_half_confirms(home, bert_folder):
    """Of sentences with one of two groups of words, whose vocabulary is the label. They are too
    short for halves, and the labels are in a table, whose options the lines of text do not need."""
    draw, groups = random.Random(2), (WORDS[:8], WORDS[8:])
    texts = [" ".join(draw.choices(groups[n % 2], k=11)) for n in range(120)]
    (home / "short.txt").write_text("\n".join(texts))
    rows = (f"{text};{n % 2}\n" for n, text in enumerate(texts))
    (home / "labels.csv").write_text("question;kind\n" + "".join(rows))
    words = (*("adapt", "short.txt", "--labelled", "labels.csv", "--label-column", "kind"),)
    words += ("--text-column", "question", "--delimiter", ";")
    words += ("--encoder", bert_folder, "--candidates", "simcse", "--batch-size", "8")
    job = forked.run(*words, "--steps", "4", "--output", "labelled", **where(home))
    assert job.returncode == 0, job.stderr
    result = json.loads((home / "labelled" / "result.json").read_text())
    rows = read_rows(home / "labelled" / "trials" / "simcse" / "metrics.jsonl")
    best = max(row.get("dev_same_label", 0.0) for row in rows.values())
    assert result["dev"]["simcse"] == best > 0
    assert not any("dev_found_first" in row for row in rows.values())
    texts = {name: scores["same-label"]["texts"] for name, scores in result["models"].items()}
    assert set(texts.values()) == {60}
    winner = result["winner"]
    low = result["differences"][winner]["same-label"]["low"] if winner != "untouched" else 0.0
    assert result["chosen"] == (winner if low > 0 else "untouched")
    assert "labelled texts nearest to one of the same label, in %" in job.stdout
    assert "dev texts by labels, %" in job.stdout
    page = (home / "labelled" / "report.html").read_text()
    assert "No training saw a label" in page
    assert "held-out sentence" not in page
    assert "no sentences have at least 12 words, too few to hold any out" in job.stderr
    assert result["documents"] == {"by": "none", "held_out": 0}
    assert set(result["table"]) == {"same-label", "pairs-dev", "pairs-test"}
    assert "model --input short.txt --output runs/vectors" in job.stdout


def test_a_killed_adaptation_continues_to_the_same_result(adapted, home, bert_folder):
    """SIGKILL of the driver in the first training, then the same command and a worker of it."""
    words, quiet = command(bert_folder, "killed"), subprocess.DEVNULL
    job = forked.Command(*words, stdout=quiet, stderr=quiet, **where(home))
    first = home / "killed" / "trials" / "denosent-rest"
    until(lambda: list((first / "checkpoints").glob("step-????????")), process=job)
    job.send_signal(signal.SIGKILL)
    job.wait()
    assert not (home / "killed" / "result.json").exists()
    streams = {"stdout": quiet, "stderr": subprocess.PIPE, "text": True}
    again = forked.Command(*words, **streams, **where(home))
    kill_first(again.pid, "ray::SingleWork")
    _, stderr = again.communicate(timeout=400)
    assert again.returncode == 0, stderr
    assert "continuing the adaptation" in stderr
    results = [json.loads((home / n / "result.json").read_text()) for n in ("out", "killed")]
    for name in ("chosen", "dev", "table", "documents"):
        assert results[0][name] == results[1][name]
    for model in ("model", "trials/denosent-rest/model", "merged"):
        before, after = (
            load_file(home / n / model / "model.safetensors") for n in ("out", "killed")
        )
        assert all((before[key] == after[key]).all() for key in before)
