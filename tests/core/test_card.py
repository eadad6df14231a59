"""Model cards: their front matter and what they tell. Their Python blocks: test_saving.py."""

from __future__ import annotations

import math
import re
import shutil
from dataclasses import replace

import pytest
import yaml

from cotbert_core import SentenceEncoder
from cotbert_core.files import write_json
from cotbert_core.methods.base import recorded
from cotbert_core.saving.lineage import CARD_FILE, base_model, data_of, first_encoder
from cotbert_core.saving.markdown import code
from cotbert_core.saving.model_card import add_scores
from cotbert_core.saving.training_metadata import Score, TrainingMetadata
from cotbert_core.settings import TrainSettings

SETTINGS = {
    "encoder": "bert-base-uncased",
    "templates.anchor": "cot-bert/anchor",
    "templates.positive": "a [X] | b [MASK]",
    "templates.negative": None,
    "method.name": "cot-bert",
    "method.temperature": 0.05,
    "batch_size": 64,
    "epochs": 3,
    "max_steps": 5000,
    "cpus_per_worker": 2,
}
FACTS = TrainingMetadata(
    {"source": "wiki.txt", "sentences": 12, "digest": "abc"},
    [Score("STS-B dev", 30.5, 81.4)],
    {"date": "2026-11-22", "commit": "1234"},
)


def front_matter(folder):
    _, front, body = (folder / CARD_FILE).read_text(encoding="utf-8").split("---\n", 2)
    return yaml.safe_load(front), body


def test_a_card_with_facts_tells_them(bert_folder, tmp_path):
    encoder = SentenceEncoder.from_pretrained(bert_folder, template="cot-bert/anchor")
    encoder.pooling = replace(encoder.pooling, method="cot-bert", settings=SETTINGS)
    encoder.save_pretrained(tmp_path / "saved", FACTS)
    front, body = front_matter(tmp_path / "saved")
    assert front == {
        "library_name": "sentence-transformers",
        "pipeline_tag": "sentence-similarity",
        "tags": [
            *("sentence-transformers", "sentence-similarity", "feature-extraction", "cotbert"),
            "cot-bert",
        ],
        "base_model": "bert-base-uncased",
    }
    for part in (
        '| template | `The sentence of "[X]" means [MASK] , so it can',
        r"| positive in training | `a [X] \| b [MASK]` |",
        "| `method.temperature` | 0.05 |",
        "| STS-B dev | 30.50 | 81.40 |",
        "| `max_steps` | 5000 |",
        *("| source | wiki.txt |", "| digest | abc |", "| commit | 1234 |"),
        "Not chosen yet",
    ):
        assert part in body
    assert not re.search("negative in training|cpus_per_worker|epochs", body)


def test_a_card_without_facts_is_short_and_names_no_path(bert_folder, tmp_path):
    SentenceEncoder.from_pretrained(bert_folder).save_pretrained(tmp_path / "saved")
    front, body = front_matter(tmp_path / "saved")
    assert "base_model" not in front
    assert str(tmp_path.parent) not in body
    assert "no training recorded" in body
    assert "Made with" not in body
    assert base_model("all-MiniLM-L6-v2") == "sentence-transformers/all-MiniLM-L6-v2"
    assert base_model("someone/model.v2") == "someone/model.v2"
    assert base_model(str(tmp_path)) is base_model("runs/a/model") is None


def test_a_second_training_names_the_encoder_of_the_first(bert_folder, tmp_path):
    """Also when the folder that it began from is gone."""
    began = "all-MiniLM-L6-v2"
    for number in range(3):
        settings = recorded(TrainSettings(encoder=began))
        assert settings.get("base_model") == (None if number == 0 else "all-MiniLM-L6-v2")
        encoder = SentenceEncoder.from_pretrained(bert_folder)
        encoder.pooling = replace(encoder.pooling, method="cot-bert", settings=settings)
        began = str(tmp_path / str(number))
        encoder.save_pretrained(began, FACTS)
        if number == 1:
            shutil.rmtree(tmp_path / "0")
        front, body = front_matter(tmp_path / str(number))
        assert front["base_model"] == "sentence-transformers/all-MiniLM-L6-v2"
        assert "| encoder | sentence-transformers/all-MiniLM-L6-v2 |" in body
    assert first_encoder("bert-base-uncased") == "bert-base-uncased"
    write_json(tmp_path / "1" / "cotbert.json", {"settings": {"encoder": str(tmp_path / "1")}})
    assert first_encoder(str(tmp_path / "1")) == str(tmp_path / "1")
    (tmp_path / "1" / "cotbert.json").write_text("{")
    (tmp_path / "1" / "README.md").unlink()
    assert first_encoder(str(tmp_path / "1")) == str(tmp_path / "1")


def test_a_training_from_a_folder_without_one_names_the_encoder_in_its_card(bert_folder, tmp_path):
    """Such as the untouched encoder that `adapt` hands back."""
    encoder = SentenceEncoder.from_pretrained(bert_folder)
    encoder.backbone.name = "all-MiniLM-L6-v2"
    encoder.save_pretrained(tmp_path / "untouched")
    settings = recorded(TrainSettings(encoder=str(tmp_path / "untouched")))
    assert settings["base_model"] == "sentence-transformers/all-MiniLM-L6-v2"
    # The base model in the card of a folder from elsewhere is not the encoder itself.
    (tmp_path / "untouched" / "cotbert.json").unlink()
    assert first_encoder(str(tmp_path / "untouched")) == str(tmp_path / "untouched")


def test_a_folder_under_the_home_folder_names_its_first_encoder(bert_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    encoder = SentenceEncoder.from_pretrained(bert_folder)
    encoder.backbone.name = "all-MiniLM-L6-v2"
    encoder.save_pretrained("~/mine")
    SentenceEncoder.from_pretrained("~/mine").save_pretrained("~/again")
    front, _ = front_matter(tmp_path / "again")
    assert front["base_model"] == "sentence-transformers/all-MiniLM-L6-v2"


def test_the_data_are_read_from_a_card(bert_folder, tmp_path):
    facts = replace(FACTS, data={"source": code("a|b.txt, `c`"), "sentences": "1,234"})
    SentenceEncoder.from_pretrained(bert_folder).save_pretrained(tmp_path / "saved", facts)
    assert data_of(tmp_path / "saved") == facts.data
    assert data_of(tmp_path) == {}
    SentenceEncoder.from_pretrained(bert_folder).save_pretrained(tmp_path / "unknown")
    assert data_of(tmp_path / "unknown") == {}


@pytest.mark.parametrize(
    ("template", "full_stop", "said"),
    [
        ("cot-bert/anchor", True, "The template lies in the tokenizer; no code of this"),
        (None, True, "The tokenizer adds the full stop; no code of this"),
        (None, False, "in fp32). No code of this"),
    ],
)
def test_the_card_says_what_the_tokenizer_adds(bert_folder, tmp_path, template, full_stop, said):
    encoder = SentenceEncoder.from_pretrained(bert_folder, template=template)
    encoder.pooling = replace(encoder.pooling, full_stop=full_stop)
    encoder.save_pretrained(tmp_path / "saved")
    _, body = front_matter(tmp_path / "saved")
    assert f"{said} folder is run." in body


def test_scores_can_come_later(bert_folder, tmp_path):
    SentenceEncoder.from_pretrained(bert_folder).save_pretrained(tmp_path / "saved", FACTS)
    add_scores(tmp_path / "saved", [Score("test", None, 70.126), Score("other", 1.0, 2.0)])
    add_scores(tmp_path / "saved", [Score("untouched", 3.0, None)])
    add_scores(tmp_path / "saved", [Score("equal cosines", 3.0, math.nan)])
    _, body = front_matter(tmp_path / "saved")
    assert "| untouched | 3.00 |  |\n| equal cosines | 3.00 | undefined |" in body
    table = [line for line in body.splitlines() if re.search(r"\| \d+\.\d\d \|$", line)]
    assert table == [
        "| STS-B dev | 30.50 | 81.40 |",
        "| test |  | 70.13 |",
        "| other | 1.00 | 2.00 |",
    ]
    # The table begins with the first score.
    SentenceEncoder.from_pretrained(bert_folder).save_pretrained(tmp_path / "unscored")
    _, body = front_matter(tmp_path / "unscored")
    assert "## Scores\n\nNot recorded.\n<!--" in body
    add_scores(tmp_path / "unscored", [Score("test", None, 70.126)])
    _, body = front_matter(tmp_path / "unscored")
    assert "| score | before | after |\n| --- | --- | --- |\n| test |  | 70.13 |\n<!--" in body
    assert "## Scores\n\nSpearman x 100 against graded pairs, unless the name says" in body
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / CARD_FILE).write_text("my own card")
    add_scores(tmp_path / "mine", [Score("test", None, 1.0)])
    assert (tmp_path / "mine" / CARD_FILE).read_text() == "my own card"
