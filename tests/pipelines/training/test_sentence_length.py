"""max_length follows the corpus unless it is named, and what is cut is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny_corpus import write_corpus
from trainings import training

from cotbert_core.encoder.row_limits import most_tokens
from cotbert_core.errors import UserError
from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.settings import TrainSettings, override
from pipelines import recipes
from pipelines.cli import main
from pipelines.storage.corpus import Corpus
from pipelines.training import sentence_length
from pipelines.training.inputs import check_inputs
from pipelines.training.sentence_length import cut_notes, cut_share, with_corpus_max_length
from pipelines.tuning.tune import check_settings

# Of 5, 13, 21 and 45 tokens.
TEXTS = [" ".join(["a"] * length) for length in (5, 13, 21, 45)]
JOBS = {
    "train": ("train", "cot-bert-base"),
    "tune": ("tune", "seeds", "--recipe", "cot-bert-base"),
    "compare": ("compare", "cot-bert-base", "simcse-base"),
}
ROOMS = {"train": "training", "tune": "tuning", "compare": "comparing"}


@pytest.fixture
def corpus(tmp_path, bert_folder):
    return Corpus.open(write_corpus(tmp_path / "corpus", bert_folder, TEXTS * 10, max_length=64))


@pytest.fixture
def begun(tmp_path, bert_folder, corpus, monkeypatch):
    """The settings with which a command begins its job, of each recipe."""

    def settings_of(command, *flags):
        found = []

        def job(*arguments, **_):
            found.extend(value for value in arguments if isinstance(value, TrainSettings))
            found.extend(s for a in arguments for s in getattr(a, "entries", {}).values())
            raise UserError("captured")

        monkeypatch.setattr(f"pipelines.{ROOMS[command]}.{command}.{command}", job)
        line = training(bert_folder, corpus.path, tmp_path / "out", job=JOBS[command], flags=flags)
        assert main(line) == 2
        assert found
        return found

    return settings_of


@pytest.mark.parametrize("command", JOBS)
def test_the_default_follows_the_corpus(begun, capsys, command):
    assert {settings.max_length for settings in begun(command)} == {64}
    assert "note: max_length is 64, as the corpus was prepared" in capsys.readouterr().err


@pytest.mark.parametrize("command", JOBS)
@pytest.mark.parametrize("how", ["--set", "--config", "recipe"])
def test_a_named_length_wins_and_what_it_cuts_is_said(
    tmp_path, begun, corpus, monkeypatch, command, how
):
    (tmp_path / "a.yaml").write_text("max_length: 32\n")
    flags = {"--set": ["--set", "max_length=32"], "--config": ["--config", tmp_path / "a.yaml"]}
    if how == "recipe":
        pinned = override(recipes.cot_bert_base(), {"max_length": 32})
        monkeypatch.setitem(recipes.RECIPES, "cot-bert-base", lambda: pinned)
    for settings in begun(command, *flags.get(how, [])):
        assert settings.max_length == 32
        assert check_inputs(override(settings, {"batch_size": 4, "max_steps": 3}), corpus)[0] == (
            "max_length is 32 and the corpus was prepared with 64: 25.0 % of its sentences are cut "
            "(--set max_length=64 keeps them as they are)"
        )


def test_a_sweep_says_it_once_before_its_trials(bert_folder, corpus, tiny_settings, capsys):
    trials = [tiny_settings(bert_folder, {"max_length": n, "seed": n}) for n in (8, 8, 16, 64)]
    check_settings(trials, corpus)
    lines = [line for line in capsys.readouterr().err.splitlines() if "max_length" in line]
    assert [line.split(": ")[2].split(" %")[0] for line in lines] == ["75.0", "50.0"]


def test_a_shorter_corpus_is_followed_too(tmp_path, bert_folder):
    short = Corpus.open(write_corpus(tmp_path / "short", bert_folder, TEXTS, max_length=16))
    settings = with_corpus_max_length(override(TrainSettings(), {"encoder": bert_folder}), short)
    assert settings.max_length == 16
    assert cut_notes(settings, short) == []


def test_the_share_of_many_parts_is_a_samples(tmp_path, bert_folder, monkeypatch):
    parts = [TEXTS[:2]] + [TEXTS] * 5
    many = Corpus.open(write_corpus(tmp_path / "many", bert_folder, *parts, max_length=64))
    assert cut_share(many, 16) == (10 / 22, False)
    monkeypatch.setattr(sentence_length, "SAMPLED_PARTS", 2)
    assert cut_share(many, 16) == (2 / 6, True)
    settings = override(TrainSettings(), {"max_length": 16})
    assert "about 33.3 % of its sentences are cut" in cut_notes(settings, many)[0]


@pytest.mark.parametrize("method", ["simcse", "cot-bert"])
def test_a_length_that_the_encoder_cannot_take_is_refused(
    tmp_path, bert_folder, tiny_settings, method
):
    folder = write_corpus(tmp_path / "corpus", bert_folder, TEXTS, max_length=500)
    changes = {"max_length": 127}
    if method == "simcse":
        changes |= {f"templates.{role}": None for role in ("anchor", "positive", "negative")}
        changes |= {"method.name": "simcse", "method.temperature": 0.05}
    with pytest.raises(UserError, match=r"max_length is 127.*--set max_length"):
        check_inputs(tiny_settings(bert_folder, changes), Corpus.open(folder))


@pytest.mark.parametrize("length", [20, 21])
def test_a_length_that_the_trained_encoder_will_not_read_is_said(
    tmp_path, bert_folder, tiny_settings, corpus, length
):
    SentenceEncoder.from_pretrained(bert_folder, max_length=20).save_pretrained(tmp_path / "short")
    settings = tiny_settings(str(tmp_path / "short"), {"max_length": length, "batch_size": 4})
    said = f"max_length is {length} and the trained encoder reads 20 tokens of a text"
    assert any(said in note for note in check_inputs(settings, corpus)) == (length > 20)


@pytest.mark.usefixtures("without_ray")
@pytest.mark.parametrize(("length", "status"), [(127, 2), (126, 0)])
def test_prepare_refuses_more_than_the_encoder_takes(tmp_path, bert_folder, capsys, length, status):
    (tmp_path / "a.txt").write_text("A man\n")
    words = ["prepare", "--input", str(tmp_path / "a.txt"), "--encoder", bert_folder]
    assert main([*words, "--max-length", str(length), "--output", str(tmp_path / "out")]) == status
    message = f"max_length is {length} and encoder '{bert_folder}' takes at most 126 tokens"
    assert (message in capsys.readouterr().err) == (status == 2)
    assert (tmp_path / "out").exists() == (status == 0)


@pytest.mark.usefixtures("without_ray")
@pytest.mark.parametrize(("length", "dropped"), [(2, True), (12, False)])
def test_prepare_says_how_many_sentences_lost_their_ends(
    tmp_path, bert_folder, capsys, length, dropped
):
    (tmp_path / "a.txt").write_text("A man is playing the guitar\nTwo dogs\n")
    words = ["prepare", "--input", str(tmp_path / "a.txt"), "--encoder", bert_folder]
    assert main([*words, "--max-length", str(length), "--output", str(tmp_path / "out")]) == 0
    note = f"note: 1 sentence of 2 had more than {length} tokens, and their ends were dropped"
    assert (note in capsys.readouterr().err) == dropped


def test_positions_kept_for_padding_do_not_count(roberta_folder):
    config = json.loads((Path(roberta_folder) / "config.json").read_text())
    assert (config["max_position_embeddings"], most_tokens(roberta_folder)) == (130, 128)


def test_an_encoder_is_not_opened_for_more_than_it_takes(bert_folder):
    assert SentenceEncoder.from_pretrained(bert_folder, max_length=126).max_length == 126
    with pytest.raises(UserError, match=r"max_length is 5000 and the encoder .* takes 126 tokens"):
        SentenceEncoder.from_pretrained(bert_folder, max_length=5000)
