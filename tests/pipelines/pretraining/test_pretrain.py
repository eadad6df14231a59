"""cotbert pretrain as a user runs it, killed and continued too; several checks read one run."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import threading

import pytest
import torch
from forked import Command
from mlflow import MlflowClient
from process_tree import kill_first
from safetensors.torch import load_file
from trainings import SENTENCES, result_of, set_words, wait_for_checkpoint
from transformers import AutoModelForMaskedLM

from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.encoder.mlm import load_mlm_head
from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.training.checkpoints import checkpoints
from pipelines.cli import main
from pipelines.preparing.options import PrepareOptions
from pipelines.preparing.prepare import prepare
from pipelines.storage.corpus import Corpus
from pipelines.training.metrics_log import read_rows

pytestmark = pytest.mark.ray_local

SETTINGS = (
    *("batch_size=4", "max_steps=6", "eval_every=2", "precision=fp32", "workers=2"),
    *("method.packed_length=24", "method.whole_word=true", "optimizer.learning_rate=3e-3"),
)


@pytest.fixture(scope="module")
def line(home, bert_folder):
    """The command line of a pretraining into home/NAME, on a prepared corpus."""
    (home / "sentences.txt").write_text("\n".join(SENTENCES))
    prepare(PrepareOptions((str(home / "sentences.txt"),), bert_folder, 20), home / "corpus")

    def words(name, *settings, flags=()):
        command = ["pretrain", "mlm-small", "--corpus", str(home / "corpus"), "--new", "2x32"]
        command += ["--vocabulary", "200", "--output", str(home / name)]
        return [*command, *set_words(*SETTINGS, *settings), *flags]

    return words


@pytest.fixture(scope="module")
def trained(home, line):
    """A run of two workers from a new encoder, dropout on."""
    assert main(line("run", flags=("--keep-checkpoints", "best"))) == 0
    return home / "run"


def test_the_folder_of_another_job_is_left_as_it_is(home, line, trained, capsys):
    other = home / "other"
    other.mkdir()
    (other / "settings.json").write_text('{"settings": {"method.name": "simcse"}}')
    for folder, message in ((other, "holds the files of another job"), (trained, "is finished")):
        before = sorted(folder.rglob("*"))
        assert main(line(folder.name)) == 2
        (said,) = capsys.readouterr().err.splitlines()
        assert message in said
        assert sorted(folder.rglob("*")) == before


def curve(run):
    """Loss and dev score of each step."""
    rows = read_rows(run / "metrics.jsonl").values()
    return [[row.get(name) for name in ("loss", "dev_mlm_accuracy")] for row in rows]


def test_the_result_is_the_masked_accuracy_and_no_spearman(trained):
    result, rows = result_of(trained), read_rows(trained / "metrics.jsonl")
    run = MlflowClient(tracking_uri="sqlite:///mlflow.db").get_run(result["mlflow_run_id"])
    assert run.data.tags["job"] == "pretrain"
    scores = {step: rows[step]["dev_mlm_accuracy"] for step in (0, 2, 4, 6)}
    assert result["dev_mlm_accuracy_before"] == scores[0]
    assert result["baseline_mlm_accuracy"] == pytest.approx(scores.pop(0), abs=0.5)
    assert result["dev_mlm_accuracy"] == max(scores.values())
    assert result["dev"] == "held-out rows"
    assert not [name for name in result if "spearman" in name]
    assert rows[6]["loss"] < rows[1]["loss"]
    assert "<svg" in (trained / "report.html").read_text()
    card = (trained / "model" / "README.md").read_text()
    assert "% of the masked tokens that are predicted" in card


def test_the_model_is_an_encoder_with_a_head(trained):
    model = str(trained / "model")
    assert not load_mlm_head(load_backbone(model)).fresh
    head = AutoModelForMaskedLM.from_pretrained(model).cls.predictions.transform.dense
    (found,) = checkpoints(trained / "checkpoints")
    assert found.step == result_of(trained)["best_step"]
    torch.testing.assert_close(head.weight, found.load()["method"]["vocabulary.dense.weight"])
    assert SentenceEncoder.from_pretrained(model).encode(["A man"]).shape == (1, 32)


def test_a_killed_run_continues_to_the_same_model(home, line, trained, capfd, monkeypatch):
    """SIGKILL of the driver after the first checkpoint, then the same command, and of a worker."""
    output = home / "killed"
    job = Command(*line("killed"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for_checkpoint(output)
    job.send_signal(signal.SIGKILL)
    job.wait()
    assert not (output / "result.json").exists()
    killer = threading.Thread(target=kill_first, args=(os.getpid(), "ray::RayTrainWo"))
    killer.start()
    assert main(line("killed")) == 0
    killer.join()
    shown = capfd.readouterr()
    assert "died (killed, out of memory, or a lost node)" in shown.err
    assert curve(output) == curve(trained)
    own, whole = (load_file(f / "model" / "model.safetensors") for f in (output, trained))
    assert own.keys() == whole.keys()
    assert all(torch.equal(own[name], whole[name]) for name in own)
    (words,) = re.findall(r"  next    \S*cotbert (.+)", shown.out)
    monkeypatch.chdir(home)
    assert main([*shlex.split(words)[:-1], "tokenized"]) == 0
    assert Corpus.open(home / "tokenized").manifest["encoder"] == "killed/model"
