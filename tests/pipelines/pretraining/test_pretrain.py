"""cotbert pretrain as a user runs it, killed and resumed too; several checks read one run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time

import pytest
import torch
from forked import Command
from process_tree import kill_first
from safetensors.torch import load_file

from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.encoder.mlm import load_mlm_head
from cotbert_core.files import read_json
from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.training.checkpoints import checkpoints
from pipelines.cli import main
from pipelines.prepare import prepare
from pipelines.preparing.options import PrepareOptions
from pipelines.training.metrics_log import read_rows

pytestmark = pytest.mark.ray_local

SETTINGS = ("batch_size=4", "max_steps=6", "eval_every=2", "precision=fp32", "workers=2")
MLM = ("method.packed_length=24", "method.whole_word=true", "optimizer.learning_rate=3e-3")


@pytest.fixture(scope="module")
def corpus(home, bert_folder):
    subjects = ("A man", "Two dogs", "The children", "She", "Nobody", "A woman")
    ends = ("on the stage.", "in the green field", "while they watch the ice.", "after the answer.")
    verbs = ("is singing", "walks", "saw a penguin")
    lines = [f"{s} {v} {e}" for s in subjects for v in verbs for e in ends]
    (home / "sentences.txt").write_text("\n".join(lines))
    prepare(PrepareOptions((str(home / "sentences.txt"),), bert_folder, 20), home / "corpus")
    return home / "corpus"


def command(corpus, output, *flags):
    sets = [part for item in (*SETTINGS, *MLM) for part in ("--set", item)]
    words = ("--new", "2x32", "--vocabulary", "200")
    return ["pretrain", "mlm-small", "--corpus", str(corpus), "--output", str(output),
            *words, *sets, *flags]  # fmt: skip


@pytest.fixture(scope="module")
def trained(home, corpus):
    """A run of two workers from a new encoder, dropout on."""
    assert main(command(corpus, home / "run", "--keep-checkpoints", "best")) == 0
    return home / "run"


def test_the_result_is_the_masked_accuracy_and_no_spearman(trained):
    result = json.loads((trained / "result.json").read_text())
    rows = read_rows(trained / "metrics.jsonl")
    scores = {step: rows[step]["dev_mlm_accuracy"] for step in (0, 2, 4, 6)}
    assert result["dev_mlm_accuracy"] == max(scores[step] for step in (2, 4, 6))
    assert result["dev_mlm_accuracy_before"] == scores[0]
    assert result["baseline_mlm_accuracy"] == pytest.approx(scores[0], abs=0.5)
    assert result["dev"] == "held-out rows"
    assert not [name for name in result if "spearman" in name]
    losses = [row["loss"] for row in rows.values() if "loss" in row]
    assert losses[-1] < losses[0]
    assert "<svg" in (trained / "report.html").read_text()
    card = (trained / "model" / "README.md").read_text()
    assert "% of the masked tokens that are predicted" in card


def test_the_model_is_an_encoder_with_a_head(trained):
    from transformers import AutoModelForMaskedLM

    model = str(trained / "model")
    assert not load_mlm_head(load_backbone(model)).fresh
    whole = AutoModelForMaskedLM.from_pretrained(model)
    best = read_json(trained / "result.json")["best_step"]
    (found,) = checkpoints(trained / "checkpoints")
    assert found.step == best
    weights = found.load()["method"]
    torch.testing.assert_close(
        whole.cls.predictions.transform.dense.weight, weights["vocabulary.dense.weight"]
    )
    assert SentenceEncoder.from_pretrained(model).encode(["A man"]).shape == (1, 32)


def test_two_workers_have_the_curve_of_one(home, corpus):
    curves = []
    for workers in (1, 2):
        output = home / f"workers-{workers}"
        sets = ("dropout=0", "max_steps=3", f"workers={workers}")
        assert main(command(corpus, output, *(w for one in sets for w in ("--set", one)))) == 0
        rows = read_rows(output / "metrics.jsonl").values()
        curves.append([row[n] for row in rows for n in ("loss", "dev_mlm_accuracy") if n in row])
    assert curves[0] == pytest.approx(curves[1], abs=1e-4)
    assert curves[0][1] != pytest.approx(curves[0][2], abs=1e-3), "premise: the loss moves"


def test_a_killed_run_continues_to_the_same_model(home, corpus, trained, capfd):
    """SIGKILL of the driver after the first checkpoint, then --resume, and of a worker there."""
    output = home / "killed"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    job = Command(*command(corpus, output), **quiet)
    limit = time.monotonic() + 300
    while not list((output / "checkpoints").glob("step-????????")):
        assert job.poll() is None, "it ended before its first checkpoint"
        assert time.monotonic() < limit
        time.sleep(0.01)
    job.send_signal(signal.SIGKILL)
    job.wait()
    assert not (output / "result.json").exists()
    assert main(command(corpus, output)) == 2, "a used folder needs --resume"
    killer = threading.Thread(target=kill_first, args=(os.getpid(), "ray::RayTrainWo"))
    killer.start()
    assert main(command(corpus, output, "--resume")) == 0
    killer.join()
    assert "died (killed, out of memory, or a lost node)" in capfd.readouterr().err
    names = ("loss", "dev_mlm_accuracy")
    curves = [
        [[row.get(name) for name in names] for row in read_rows(f / "metrics.jsonl").values()]
        for f in (output, trained)
    ]
    assert curves[0] == curves[1]
    weights = [load_file(f / "model" / "model.safetensors") for f in (output, trained)]
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
