"""The registry: vectors out of it, and which version has the alias."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import util

import numpy as np
import pytest

from cotbert_core import SentenceEncoder
from cotbert_core.errors import UserError
from pipelines.recording.registry import check_registry, register
from pipelines.recording.tracking import Run, tracked_run

LOAD = """
import sys, numpy as np, mlflow
texts = open(sys.argv[2], encoding="utf-8").read().splitlines()
model = mlflow.pyfunc.load_model(sys.argv[1])
np.save(sys.argv[3], model.predict(texts))
assert model.metadata.signature is not None and model.input_example is not None
assert not any(name.split(".")[0] in ("cotbert_core", "pipelines") for name in sys.modules)
"""


@pytest.mark.parametrize("name", ["", "a/b", "a:b", "@a", "a@b"])
def test_a_name_that_mlflow_would_not_find_is_refused(name):
    with pytest.raises(UserError, match=f"the registered name is '{name}': use only letters"):
        check_registry(name)


def test_without_sentence_transformers_the_extra_is_named(monkeypatch):
    check_registry("my-encoder.v2")
    monkeypatch.setattr(util, "find_spec", lambda name: None)
    with pytest.raises(
        UserError, match=r"sentence-transformers: install it with pip install 'cotbert\[reg"
    ):
        check_registry("my-encoder.v2")


def test_a_run_that_the_store_does_not_know_is_not_registered(tmp_path, capsys):
    assert register(Run(None, None), tmp_path, "name") is None
    assert capsys.readouterr().err.endswith("its run is not in MLflow yet\n")


def test_a_folder_that_cannot_be_opened_is_a_warning(own_store, tmp_path, capsys):
    with tracked_run("train", {}) as run:
        assert register(run, tmp_path / "none", "name") is None
    assert f"{tmp_path / 'none'} is not registered as 'name' at MLflow" in capsys.readouterr().err
    assert own_store.search_registered_models() == []
    assert own_store.get_run(run.id).info.status == "FINISHED"


@pytest.mark.real
def test_a_registered_model_gives_equal_vectors_in_a_fresh_process(
    server, server_client, bert_folder, sentences, tmp_path, capsys
):
    encoder = SentenceEncoder.from_pretrained(bert_folder, template="cot-bert/anchor")
    encoder.save_pretrained(tmp_path / "model")
    with tracked_run("train", {}) as run:
        assert register(run, tmp_path / "model", "bert", score=70.0) == "models:/bert/1"
    (tmp_path / "texts").write_text("\n".join(sentences), encoding="utf-8")
    command = [sys.executable, "-c", LOAD, "models:/bert@best"]
    command += [str(tmp_path / "texts"), str(tmp_path / "vectors.npy")]
    # MLflow leaves what it downloads in the folder of temporary files.
    offline = {"HF_HUB_OFFLINE": "1", "PYTHONPATH": "", "TMPDIR": str(tmp_path)}
    subprocess.run(command, check=True, cwd=tmp_path, env={**os.environ, **offline})
    vectors = np.load(tmp_path / "vectors.npy")
    expected = encoder.encode(sentences, precision="fp32")
    assert vectors.shape == expected.shape == (len(sentences), 32)
    assert cosines(vectors, expected).min() >= 1 - 1e-6
    assert cosines(vectors, np.roll(expected, 1, axis=0)).max() < 0.999, "vectors must differ"

    version = server_client.get_model_version_by_alias("bert", "best")
    assert (version.run_id, version.tags["dev_spearman"]) == (run.id, "70.0")
    files = list((server.folder / "artifacts").rglob("*"))
    assert not [f for f in files if f.suffix in (".pkl", ".pickle", ".bin", ".pt")]
    # sentence-transformers would leave out what makes servers stop at the folder.
    (registered,) = (f.parent for f in files if f.name == "modules.json")
    for path in (f for f in (tmp_path / "model").rglob("*") if f.is_file()):
        copy = registered / path.relative_to(tmp_path / "model")
        assert copy.read_bytes() == path.read_bytes(), path
    capsys.readouterr()


def cosines(a, b):
    return (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)


@pytest.mark.real
def test_the_alias_moves_to_a_better_version_alone(own_store, bert_folder, tmp_path, capsys):
    SentenceEncoder.from_pretrained(bert_folder, template="cot-bert/anchor").save_pretrained(
        tmp_path / "model"
    )
    reported = []
    with tracked_run("train", {}) as run:
        for score in (70.0, 69.5, 70.0, 71.25, None):
            register(run, tmp_path / "model", "name", score=score)
            reported.append((own_store.get_model_version_by_alias("name", "best").version, score))
    assert reported == [(1, 70.0), (1, 69.5), (1, 70.0), (4, 71.25), (4, None)]
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("name@")]
    stays = "name@best stays at version {} (dev Spearman {}); the new version is {} ({})"
    now = "name@best is now version {} (dev Spearman {})"
    assert lines == [
        now.format(1, "70.00"),
        stays.format(1, "70.00", 2, "dev Spearman 69.50"),
        stays.format(1, "70.00", 3, "dev Spearman 70.00"),
        now.format(4, "71.25") + ", previously version 1 (dev Spearman 70.00)",
        stays.format(4, "71.25", 5, "no dev score"),
    ]
