"""Notes of an adaptation on texts that are too long."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from pipelines.adapting.length_notes import length_notes, require_sentences
from pipelines.adapting.options import AdaptOptions
from pipelines.cleaning.options import CleanOptions
from pipelines.cli import main
from pipelines.preparing.prepare import prepare
from pipelines.storage.corpus import Corpus

WORDS = "the man saw the penguin on the ice while the children watch the dogs in the green field"


@pytest.fixture
def notes(tmp_path, bert_folder, unrecorded):
    """Of an adaptation to texts of so many sentences."""

    def of(sizes, **options):
        texts = [
            " ".join(f"{number} {place} {WORDS}." for place in range(size))
            for number, size in enumerate(sizes)
        ]
        rows = "\n".join(json.dumps({"text": text}) for text in texts)
        (tmp_path / "texts.jsonl").write_text(rows)
        given = AdaptOptions((str(tmp_path / "texts.jsonl"),), bert_folder, **options)
        prepare(given.prepare_options(), tmp_path / "corpus")
        return length_notes(Corpus.open(tmp_path / "corpus"), bert_folder, given)

    return of


def test_documents_that_the_encoder_reads_in_part_are_counted(notes):
    (note,) = notes([3] * 20 + [9] * 20, documents="row", clean=CleanOptions(split="en"))
    found = re.match(r"(\d+) of 4 held-out documents have more than the (\d+) tokens", note)
    assert found is not None
    assert 0 < int(found[1]) <= 4
    assert found[2] == "128"
    assert "--documents paragraph (of txt, md and rst files)" in note


def test_short_documents_need_no_note(notes):
    assert notes([3] * 40, documents="row", clean=CleanOptions(split="en")) == []


@pytest.mark.ray_local
def test_texts_are_not_adapted_to_as_sentences_by_default(
    ray_here, unrecorded, bert_folder, tmp_path, capsys
):
    """Only if the user says so; the folder can be used again."""
    text = " ".join(f"{place} {WORDS}." for place in range(6))
    rows = "\n".join(json.dumps({"text": f"{n} {text}"}) for n in range(40))
    (tmp_path / "texts.jsonl").write_text(rows)
    command = ["adapt", str(tmp_path / "texts.jsonl"), "--encoder", bert_folder, "--hold-out", "4"]
    command += ["--output", str(tmp_path / "out")]
    assert main(command) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert "36 of 36 rows have more than 64 tokens, so they are texts of several sentences" in line
    assert not (tmp_path / "out").exists()
    given = AdaptOptions((str(tmp_path / "texts.jsonl"),), bert_folder, hold_out=4)
    prepare(given.prepare_options(), tmp_path / "corpus")
    require_sentences(Corpus.open(tmp_path / "corpus"), replace(given, documents="none"))


def test_rows_that_look_like_texts_are_counted(notes):
    (note,) = notes([1] * 30 + [6] * 10)
    assert note.startswith("10 of 36 rows have more than 64 tokens, and each row is adapted to as")
