"""MODEL out of MLflow: the folder that an address stands for."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from cotbert_core import SentenceEncoder
from cotbert_core.encoder.locations import locate_encoder
from cotbert_core.errors import UserError
from cotbert_core.files import read_json
from pipelines.cli import main
from pipelines.recording import fetching
from pipelines.recording.fetching import fetch_model
from pipelines.recording.registry import register
from pipelines.recording.tracking import tracked_run


@pytest.mark.real
def test_a_registered_model_opens_as_the_folder_it_was_made_of(
    own_store, own_cache, bert_folder, sentences, tmp_path, monkeypatch
):
    # The folder of an older MLflow in the current one is MLflow's default store, and not ours.
    (tmp_path / "mlruns" / "0").mkdir(parents=True)
    (tmp_path / "mlruns" / "0" / "meta.yaml").touch()
    for name, template in (("first", "cot-bert/anchor"), ("second", "promptbert/anchor")):
        encoder = SentenceEncoder.from_pretrained(bert_folder, template)
        encoder.save_pretrained(tmp_path / name)
        with tracked_run("train", {}) as run:
            register(run, tmp_path / name, "mine", score=float(len(name)))
    expected = {
        name: SentenceEncoder.from_pretrained(tmp_path / name).encode(sentences, precision="fp32")
        for name in ("first", "second")
    }
    assert np.abs(expected["first"] - expected["second"]).max() > 0.01
    found = {
        "models:/mine/1": "first",
        "models:/mine@best": "second",
        "models:/mine/latest": "second",
        f"runs:/{run.id}/mine": "second",
    }
    for address, name in found.items():
        folder = fetch_model(address)
        assert Path(folder).is_relative_to(own_cache)
        vectors = SentenceEncoder.from_pretrained(folder).encode(sentences, precision="fp32")
        np.testing.assert_allclose(vectors, expected[name], atol=1e-6)

    # It is downloaded once, but the alias is resolved again.
    monkeypatch.setattr(fetching, "_download", lambda *_: pytest.fail("downloaded again"))
    own_store.set_registered_model_alias("mine", "best", "1")
    assert fetch_model("models:/mine@best") == fetch_model("models:/mine/1")


@pytest.mark.real
@pytest.mark.parametrize("address", ["models:/none@best", "models:/none/3", "runs:/abc/model"])
def test_what_mlflow_does_not_have_is_one_sentence(own_store, own_cache, tmp_path, capsys, address):
    (tmp_path / "a.txt").write_text("A man")
    command = ["embed", address, "--input", "a.txt", "--output", "vectors"]
    assert main(command) == 2
    *_, line = capsys.readouterr().err.splitlines()
    assert line.startswith(f"cotbert: model '{address}' cannot be loaded from MLflow at sqlite:///")
    assert line.endswith("; a run has its model with --log-model") == address.startswith("runs:/")
    assert not any(Path(own_cache).rglob("*.safetensors"))


def test_a_refused_login_names_the_password_and_not_the_address(monkeypatch, own_cache):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://host")
    error = RuntimeError("API request to endpoint failed with error code 401 != 200. Response: ''")
    monkeypatch.setattr(fetching, "connect", lambda: SimpleNamespace(get_run=_raises(error)))
    with pytest.raises(UserError, match="does not admit this user") as refused:
        fetch_model("runs:/abc/model")
    assert str(refused.value).startswith("model 'runs:/abc/model' cannot be loaded: MLflow at http")
    assert "check MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD" in str(refused.value)
    assert "check the address" not in str(refused.value)


def _raises(error):
    def call(*_):
        raise error

    return call


def test_a_version_or_run_made_anew_is_another_model(monkeypatch, own_cache):
    """After the store's file was deleted a name begins with version 1 again."""
    store = SimpleNamespace(source="models:/m-1", end_time=1, downloaded=[])
    store.get_model_version = lambda name, version: store
    store.get_run = lambda run_id: SimpleNamespace(info=store)

    def download(address, folder):
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
        store.downloaded.append(address)

    monkeypatch.setattr(fetching, "connect", lambda: store)
    monkeypatch.setattr(fetching, "_download", download)
    addresses = ["models:/mine/1", "runs:/a/model"]
    first = [fetch_model(address) for address in 2 * addresses]
    assert (store.downloaded, len({*first})) == (addresses, 2)
    store.source, store.end_time = "models:/m-2", 2
    assert {*first}.isdisjoint(fetch_model(address) for address in addresses)


@pytest.mark.parametrize(
    "command",
    [
        "evaluate models:/mine@best --precision fp32 --output scores.json",
        "evaluate models:/mine@best models:/mine@best,readout=cls --output scores.json",
        "geometry models:/mine@best --output out",
        "export models:/mine@best --format folder --output out",
        "merge NAME models:/mine@best --output out",
    ],
)
def test_commands_download_the_model_and_name_its_address(
    unrecorded, own_cache, bert_folder, tmp_path, monkeypatch, capsys, command
):
    store = SimpleNamespace(version="3", source="models:/m-1")
    store.get_model_version_by_alias = store.get_model_version = lambda *_: store
    monkeypatch.setattr(fetching, "connect", lambda: store)
    monkeypatch.setattr(fetching, "_download", lambda _, to: shutil.copytree(bert_folder, to))
    assert main([bert_folder if word == "NAME" else word for word in command.split()]) == 0
    (fetched,) = (own_cache / "models").iterdir()
    told = capsys.readouterr()
    assert f"downloading models:/mine/3 from MLflow to {fetched}" in told.err
    assert fetched.name not in told.out
    if "," in command:
        assert [*read_json(tmp_path / "scores.json")["models"]] == [
            "models:/mine@best mean",
            "models:/mine@best [CLS]",
        ]
    if command.startswith("merge"):
        assert "0.5 of `models:/mine@best`" in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.parametrize("address", ["models:/mine@best", "runs:/abc/model"])
def test_an_encoder_to_train_is_no_address(address):
    with pytest.raises(UserError, match="which only a MODEL of a command can be") as refused:
        locate_encoder(address)
    assert f"`mlflow artifacts download -u {address} -d FOLDER`" in str(refused.value)


def test_a_name_is_itself_and_a_folder_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkdir("model")
    assert fetch_model("bert-base-uncased") == "bert-base-uncased"
    assert fetch_model("model") == str(tmp_path / "model")


def test_a_folder_without_an_encoder_is_reported(tmp_path):
    (tmp_path / "data").mkdir()
    with pytest.raises(UserError, match="contains no encoder that can be opened"):
        fetching._encoder_in(tmp_path, "runs:/a/model")
    (tmp_path / "data" / "config.json").write_text("{}")
    assert fetching._encoder_in(tmp_path, "runs:/a/model") == tmp_path / "data"
