"""Preparing and embedding texts that the encoder's vocabulary does not fit."""

from __future__ import annotations

import pytest

from cotbert_core.files import read_json
from cotbert_core.templates import vocabulary_fit
from pipelines.cli import main

RUSSIAN = "Дети смотрели на пингвинов на льду, пока их родители говорили о погоде, номер {}."
ENGLISH = "The children watched penguin number {} on the ice while their parents talked."
SAID = "unknown to the vocabulary of bert0, so texts that differ in them look alike to it"


@pytest.fixture(autouse=True)
def counted(monkeypatch):
    monkeypatch.setattr(vocabulary_fit, "LEAST_TOKENS", 100)
    monkeypatch.setattr(vocabulary_fit, "MOST_UNKNOWN", 0.5)


@pytest.mark.usefixtures("unrecorded")
@pytest.mark.parametrize(("sentence", "said"), [(RUSSIAN, True), (ENGLISH, False)])
def test_a_user_is_told_before_anything_is_trained(tmp_path, bert_folder, capsys, sentence, said):
    (tmp_path / "a.txt").write_text("\n".join(map(sentence.format, range(60))))
    given = ["--input", str(tmp_path / "a.txt"), "--output"]
    prepare = ["prepare", "--encoder", bert_folder, *given, str(tmp_path / "corpus")]
    embed, update = ["embed", bert_folder, *given], ["--update", str(tmp_path / "vectors")]
    for words, folder in (
        (prepare, "corpus"),
        ([*embed, str(tmp_path / "vectors")], "vectors"),
        ([*embed, str(tmp_path / "again"), *update], "again"),
    ):
        assert main(words) == 0
        shown = capsys.readouterr().err
        stored = read_json(tmp_path / folder / "manifest.json").get("warnings", [])
        assert (SAID in shown, any(SAID in one for one in stored)) == (said, said)


@pytest.mark.usefixtures("unrecorded")
@pytest.mark.parametrize(("sentence", "said"), [(RUSSIAN, True), (ENGLISH, False)])
def test_sentences_that_are_all_cut_are_noticed(
    tmp_path, bert_folder, capsys, monkeypatch, sentence, said
):
    """Spelled out letter by letter, most sentences have more tokens than a corpus keeps."""
    monkeypatch.setattr(vocabulary_fit, "LEAST_TOKENS", 60)
    (tmp_path / "a.txt").write_text("\n".join(map(sentence.format, range(60))))
    words = ["--input", str(tmp_path / "a.txt"), "--max-length", "6", "--encoder", bert_folder]
    assert main(["prepare", *words, "--output", str(tmp_path / "corpus")]) == 0
    assert read_json(tmp_path / "corpus" / "manifest.json")["truncated"] == 60
    assert (SAID in capsys.readouterr().err) == said
