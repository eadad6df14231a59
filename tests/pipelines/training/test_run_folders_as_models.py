"""MODEL may be the output of a training run: every command takes its model/."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from graded_pairs import graded, write_pairs

from cotbert_core.encoder.locations import absolute_name, locate_encoder, model_digest
from cotbert_core.errors import UserError
from cotbert_core.files import read_json
from cotbert_core.sentence_encoder import SentenceEncoder
from pipelines.cli import main
from pipelines.recording.fetching import fetch_model

TEMPLATE = 'This sentence : "[X]" means [MASK] .'
# As a user gives them; RUN stands for the folder, OUT for the output, PAIRS for graded pairs.
COMMANDS = (
    "evaluate RUN --dev-pairs PAIRS --resamples 0 --output OUT",
    "export RUN --format folder --output OUT",
    "token-map RUN --output OUT/folder",
)


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory, bert_folder):
    """What `cotbert train` leaves, as far as a reader of models sees it."""
    folder = tmp_path_factory.mktemp("runs") / "mine"
    SentenceEncoder.from_pretrained(bert_folder, TEMPLATE).save_pretrained(folder / "model")
    for name in ("settings.json", "result.json"):
        (folder / name).write_text("{}")
    (folder / "checkpoints" / "step-1").mkdir(parents=True)
    return folder


def test_the_model_in_it_is_opened(run_folder, monkeypatch, sentences):
    model = str(run_folder / "model")
    for find in (absolute_name, locate_encoder, fetch_model):
        assert find(str(run_folder)) == model
    assert model_digest(str(run_folder)) == model_digest(model) is not None
    monkeypatch.chdir(run_folder.parent)
    opened, expected = map(SentenceEncoder.from_pretrained, ("mine", model))
    assert opened.pooling == expected.pooling
    assert opened.pooling.template.text == TEMPLATE
    np.testing.assert_array_equal(opened.encode(sentences), expected.encode(sentences))


def told_of_the_model(output):
    """The digest of a model folder, or what a result says of the vectors."""
    if (output / "config.json").is_file():
        return model_digest(str(output))
    result = read_json(output / "folder" / "result.json" if output.is_dir() else output)
    named = ("sentences_per_second", "encoder")
    return {key: value for key, value in result.items() if key not in named}


@pytest.mark.usefixtures("unrecorded")
@pytest.mark.parametrize("command", COMMANDS)
def test_commands_give_what_they_give_for_the_model(tmp_path, run_folder, command):
    told, pairs = [], write_pairs(tmp_path / "pairs.tsv", graded(3))
    for name, folder in (("run", run_folder), ("model", run_folder / "model")):
        line = command
        for word, path in {"RUN": folder, "OUT": tmp_path / name, "PAIRS": pairs}.items():
            line = line.replace(word, str(path))
        assert main(line.split()) == 0
        told.append(told_of_the_model(tmp_path / name))
    assert told[0] == told[1] is not None


def test_a_folder_of_an_encoder_stays_itself(bert_folder, tmp_path):
    shutil.copytree(bert_folder, tmp_path / "a")
    shutil.copytree(bert_folder, tmp_path / "a" / "model")
    assert locate_encoder(str(tmp_path / "a")) == str(tmp_path / "a")


def test_a_run_without_a_model_is_reported(tmp_path, run_folder):
    unfinished = tmp_path / "unfinished"
    unfinished.mkdir()
    (unfinished / "settings.json").write_text("{}")
    message = "is the output of a job and has no model/ folder: give the model of a"
    with pytest.raises(UserError, match=message):
        SentenceEncoder.from_pretrained(unfinished)
    shutil.copytree(run_folder, unfinished / "trials" / "0000")
    trial = str(unfinished / "trials" / "0000" / "model")
    with pytest.raises(UserError, match=f"one of its runs, such as '{trial}'"):
        SentenceEncoder.from_pretrained(unfinished)
