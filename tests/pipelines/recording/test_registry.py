"""The registry: vectors out of it, and which version has the alias."""

from __future__ import annotations

from importlib import util
from types import SimpleNamespace

import mlflow
import numpy as np
import pytest

from cotbert_core import SentenceEncoder
from cotbert_core.errors import UserError
from pipelines.recording import registry
from pipelines.recording.dev_metric import SPEARMAN
from pipelines.recording.registry import check_registry, register
from pipelines.recording.tracking import Run, tracked_run


@pytest.mark.parametrize("name", ["", "a/b", "a:b", "@a", "a@b"])
def test_a_name_that_mlflow_would_not_find_is_refused(name):
    with pytest.raises(UserError, match=f"the registered name is '{name}': use only letters"):
        check_registry(name)


def test_without_sentence_transformers_the_extra_is_named(monkeypatch):
    check_registry("my-encoder.v2")
    monkeypatch.setattr(util, "find_spec", lambda name: None)
    with pytest.raises(
        UserError, match=r"sentence_transformers: install with pip install 'sentence-tr"
    ):
        check_registry("my-encoder.v2")


def test_a_run_that_the_store_does_not_know_is_not_registered(tmp_path, capsys):
    assert register(Run(None, None), tmp_path, "name") is None
    assert capsys.readouterr().err.endswith("its run is not in MLflow yet\n")


@pytest.mark.filterwarnings("ignore:only cotbert_core")
def test_a_folder_that_cannot_be_opened_is_a_warning(own_store, bert_folder, tmp_path, capsys):
    """One that is not there, and one that sentence-transformers refuses."""
    denoised = SentenceEncoder.from_pretrained(bert_folder, "promptbert/anchor", denoise="position")
    denoised.save_pretrained(tmp_path / "denoised")
    with tracked_run("train", {}) as run:
        for name in ("none", "denoised"):
            assert register(run, tmp_path / name, "name") is None
    said = capsys.readouterr().err
    for name in ("none", "denoised"):
        assert f"{tmp_path / name} is not registered as 'name' at MLflow" in said
    assert "only_cotbert_core_SentenceEncoder_reads_this_folder" in said
    assert own_store.search_registered_models() == []
    assert own_store.get_run(run.id).info.status == "FINISHED"


@pytest.mark.real
def test_a_registered_model_gives_equal_vectors_by_its_address(
    server, server_client, bert_folder, sentences, tmp_path
):
    """As test_travelling.py shows, also without this package."""
    encoder = SentenceEncoder.from_pretrained(bert_folder, template="cot-bert/anchor")
    encoder.save_pretrained(tmp_path / "model")
    with tracked_run("train", {}) as run:
        assert register(run, tmp_path / "model", "bert.1", score=70.0) == "models:/bert.1/1"
    model = mlflow.pyfunc.load_model("models:/bert.1@best", dst_path=tmp_path)
    expected = encoder.encode(sentences, precision="fp32")
    np.testing.assert_allclose(model.predict(sentences), expected, atol=1e-5)
    assert model.metadata.signature is not None
    assert model.input_example is not None
    version = server_client.get_model_version_by_alias("bert.1", "best")
    assert (version.run_id, version.tags["dev_spearman"]) == (run.id, "70.0")
    # sentence-transformers would leave out what makes servers stop at the folder.
    (registered,) = (f.parent for f in (server.folder / "artifacts").rglob("modules.json"))
    for path in (f for f in (tmp_path / "model").rglob("*") if f.is_file()):
        copy = registered / path.relative_to(tmp_path / "model")
        assert copy.read_bytes() == path.read_bytes(), path


@pytest.mark.real
def test_the_alias_moves_to_a_better_version_alone(own_store, bert_folder, tmp_path, capsys):
    encoder = SentenceEncoder.from_pretrained(bert_folder, template="cot-bert/anchor")
    encoder.save_pretrained(tmp_path / "model")
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


class Versions(dict):
    """The tags of a model's versions, and its aliases, as MLflow's client gives them."""

    def __init__(self, tags, best):
        super().__init__(tags)
        self.aliases = {"best": best}

    def get_registered_model(self, name):
        return self

    def get_model_version(self, name, version):
        return SimpleNamespace(tags=self[version])

    def set_registered_model_alias(self, name, alias, version):
        self.aliases[alias] = version


@pytest.mark.parametrize(
    ("dev", "best", "reported"),
    [
        ({"dev": "STS-B dev"}, "1", "stays at version 1"),
        ({"dev": "STS-B dev", "dev_digest": "a"}, "1", "stays at version 1"),
        ({"dev": "pairs.tsv"}, "2", "Spearman 89.00), which was scored on another dev set"),
    ],
)
def test_scores_of_other_dev_sets_are_not_compared(capsys, dev, best, reported):
    versions = Versions({"1": {"dev_spearman": "89.0", "dev": "STS-B dev"}}, "1")
    registry._move_alias(versions, "n", "2", {"dev_spearman": "82.0"} | dev, SPEARMAN)
    assert versions.aliases["best"] == best
    assert reported in capsys.readouterr().err
    own = {"dev_spearman": "89.0", "dev": "own documents", "dev_digest": "a"}
    versions, tags = Versions({"3": own}, "3"), own | {"dev_spearman": "50.0", "dev_digest": "b"}
    registry._move_alias(versions, "n", "4", tags, SPEARMAN)
    assert versions.aliases["best"] == "4", "own documents of another corpus"


def test_an_undefined_score_is_below_all_others():
    versions = Versions({n: {"dev_spearman": s} for n, s in (("1", "nan"), ("2", "70.0"))}, "1")
    for version, score in (("2", "70.0"), ("3", "nan")):
        registry._move_alias(versions, "n", version, {"dev_spearman": score}, SPEARMAN)
        assert versions.aliases["best"] == "2"
