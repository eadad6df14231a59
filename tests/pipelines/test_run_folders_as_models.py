"""MODEL may be the output of a training run: every command takes its model/."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from cotbert_core.encoder.locations import absolute_name, locate_encoder, model_digest
from cotbert_core.errors import UserError
from cotbert_core.sentence_encoder import SentenceEncoder
from pipelines.cli import main
from pipelines.recording.fetching import fetch_model

TEMPLATE = 'This sentence : "[X]" means [MASK] .'
# As a user gives them; RUN stands for the folder, OUT for the output.
COMMANDS = {
    "evaluate": "evaluate RUN --resamples 0 --output OUT",
    "export": "export RUN --format folder --output OUT",
    "token-map": "token-map RUN --output OUT",
}


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory, bert_folder):
    """What `cotbert train` leaves, as far as a reader of models sees it."""
    folder = tmp_path_factory.mktemp("runs") / "mine"
    encoder = SentenceEncoder.from_pretrained(bert_folder, TEMPLATE)
    encoder.save_pretrained(folder / "model")
    (folder / "settings.json").write_text("{}")
    (folder / "result.json").write_text("{}")
    (folder / "checkpoints" / "step-1").mkdir(parents=True)
    return folder


def test_the_model_in_it_is_opened(run_folder, monkeypatch, sentences):
    model = str(run_folder / "model")
    assert absolute_name(str(run_folder)) == locate_encoder(str(run_folder)) == model
    assert fetch_model(str(run_folder)) == model
    assert model_digest(str(run_folder)) == model_digest(model) is not None
    monkeypatch.chdir(run_folder.parent)
    opened, expected = map(SentenceEncoder.from_pretrained, ("mine", model))
    assert opened.pooling == expected.pooling
    assert opened.pooling.template.text == TEMPLATE
    np.testing.assert_array_equal(opened.encode(sentences), expected.encode(sentences))


def without_rate(result):
    return {k: v for k, v in json.loads(result).items() if k != "sentences_per_second"}


@pytest.mark.usefixtures("unrecorded")
@pytest.mark.parametrize("command", COMMANDS)
def test_commands_give_what_they_give_for_the_model(tmp_path, run_folder, capsys, command):
    for name, folder in (("run", run_folder), ("model", run_folder / "model")):
        stand_for = {"RUN": str(folder), "OUT": str(tmp_path / name)}
        assert main([stand_for.get(word, word) for word in COMMANDS[command].split()]) == 0
    one, other = tmp_path / "run", tmp_path / "model"
    if command == "evaluate":
        assert without_rate(one.read_text()) == without_rate(other.read_text())
    elif command == "export":
        assert model_digest(str(one)) == model_digest(str(other)) is not None
    else:
        results = [json.loads((out / "result.json").read_text()) for out in (one, other)]
        assert results[0]["anisotropy"] == results[1]["anisotropy"]


def test_a_folder_of_an_encoder_stays_itself(bert_folder, tmp_path):
    shutil.copytree(bert_folder, tmp_path / "a")
    shutil.copytree(bert_folder, tmp_path / "a" / "model")
    assert locate_encoder(str(tmp_path / "a")) == str(tmp_path / "a")


def test_a_run_without_a_model_is_reported(tmp_path, run_folder):
    unfinished = tmp_path / "unfinished"
    unfinished.mkdir()
    (unfinished / "settings.json").write_text("{}")
    with pytest.raises(
        UserError, match="is the output of a job and has no model/ folder: give the model of a"
    ):
        SentenceEncoder.from_pretrained(unfinished)
    shutil.copytree(run_folder, unfinished / "trials" / "0000")
    trial = str(unfinished / "trials" / "0000" / "model")
    with pytest.raises(UserError, match=f"one of its runs, such as '{trial}'"):
        SentenceEncoder.from_pretrained(unfinished)
