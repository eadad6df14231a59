"""Raw text for --corpus: prepared once, found again, prepared again when anything differs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from cotbert_core.errors import UserError
from cotbert_core.files import write_json
from pipelines.commands import corpus_cache
from pipelines.commands.corpus_cache import cache_folder, open_or_prepare


@pytest.fixture
def prepared(tmp_path, monkeypatch):
    """The folders that would have been prepared, with nothing but a manifest written there."""
    folders = []

    def prepare(options, folder, verbose):
        assert not folder.exists()
        folder.mkdir(parents=True)
        made = {**vars(options), "clean": vars(options.clean)}
        write_json(folder / "manifest.json", {"rows": 1, "options": made})
        folders.append(folder)

    monkeypatch.setattr(corpus_cache, "prepare", prepare)
    monkeypatch.setenv("COTBERT_CACHE", str(tmp_path / "cache"))
    return folders


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo\n")
    return path


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"COTBERT_CACHE": "/a/b", "XDG_CACHE_HOME": "/x"}, "/a/b"),
        ({"XDG_CACHE_HOME": "/x"}, "/x/cotbert"),
        ({"HOME": "/h"}, "/h/.cache/cotbert"),
    ],
)
def test_where_the_cache_is(monkeypatch, variables, expected):
    for name in ("COTBERT_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert str(cache_folder()) == expected


def test_a_prepared_corpus_is_opened_where_it_is(tmp_path, prepared, bert_folder):
    write_json(tmp_path / "manifest.json", {"rows": 7})
    assert len(open_or_prepare(str(tmp_path), bert_folder, 32)) == 7
    assert prepared == []


def test_raw_text_is_prepared_once(text, prepared, bert_folder, tmp_path, capsys):
    first = open_or_prepare(str(text), bert_folder, 16)
    again = open_or_prepare(str(text), bert_folder, 16)
    assert first.path == again.path == prepared[0]
    assert len(prepared) == 1
    assert prepared[0].is_relative_to(tmp_path / "cache" / "corpora")
    said = capsys.readouterr().err.splitlines()
    assert said == [
        f"preparing {text} into {first.path}",
        f"corpus {text} was prepared before: {first.path}",
    ]
    options = json.loads((first.path / "manifest.json").read_text())["options"]
    assert (options["inputs"], options["max_length"]) == ([str(text)], 16)


def test_the_same_file_by_another_path_is_found(text, prepared, bert_folder, monkeypatch):
    monkeypatch.chdir(text.parent)
    open_or_prepare(str(text), bert_folder, 16)
    open_or_prepare("a.txt", bert_folder, 16)
    assert len(prepared) == 1


@pytest.mark.parametrize("change", ["content", "time", "length", "column", "encoder"])
def test_what_differs_is_prepared_again(text, prepared, bert_folder, roberta_folder, change):
    open_or_prepare(str(text), bert_folder, 16)
    if change == "content":
        stat = text.stat()
        text.write_text("one\ntwo\nthree\n")
        os.utime(text, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    elif change == "time":
        os.utime(text, (1, 1))
    encoder = roberta_folder if change == "encoder" else bert_folder
    column = "title" if change == "column" else "text"
    open_or_prepare(str(text), encoder, 17 if change == "length" else 16, column)
    assert len(prepared) == len(set(prepared)) == 2


def test_companions_are_part_of_what_is_known(tmp_path, prepared, bert_folder):
    path = tmp_path / "a.csv"
    path.write_text("text,a,b\nx,y,z\n")
    columns = ({}, {"augmented_column": "a"}, {"augmented_column": "b"},
               {"augmented_column": "a", "negative_column": "b"},
               {"augmented_column": "b", "negative_column": "a"})  # fmt: skip
    for _ in range(2):
        for named in columns:
            open_or_prepare(str(path), bert_folder, 16, **named)
    assert len(prepared) == len(columns)
    options = json.loads((prepared[3] / "manifest.json").read_text())["options"]
    assert (options["augmented_column"], options["negative_column"]) == ("a", "b")


def test_a_file_of_triples_needs_no_options(tmp_path, prepared, bert_folder, capsys):
    path = tmp_path / "a.csv"
    path.write_text("sent0,sent1,hard_neg\nx,y,z\n")
    first = open_or_prepare(str(path), bert_folder, 16)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"{path}: reading columns sent0, sent1, hard_neg as triples"
    named = {"augmented_column": "sent1", "negative_column": "hard_neg"}
    again = open_or_prepare(str(path), bert_folder, 16, "sent0", **named)
    assert first.path == again.path == prepared[0]
    options = json.loads((prepared[0] / "manifest.json").read_text())["options"]
    assert [options[f"{n}_column"] for n in ("text", "augmented", "negative")] == [
        "sent0", "sent1", "hard_neg"
    ]  # fmt: skip


def test_sick_is_prepared_again_when_its_file_changes(tmp_path, prepared, bert_folder):
    path = tmp_path / "SICK_train.txt"
    path.write_text("sentence_A\tsentence_B\tentailment_judgment\n")
    for _ in range(2):
        open_or_prepare(f"sick:{tmp_path}", bert_folder, 16)
    assert len(prepared) == 1
    os.utime(path, (1, 1))
    open_or_prepare(f"sick:{tmp_path}", bert_folder, 16)
    assert len(prepared) == 2


def test_a_folder_that_is_no_corpus_is_raw_text(text, prepared, bert_folder):
    open_or_prepare(str(text.parent), bert_folder, 16)
    assert len(prepared) == 1


def test_the_parts_of_a_prepared_corpus_are_no_raw_text(tmp_path, prepared, bert_folder):
    (tmp_path / "corpus" / "data").mkdir(parents=True)
    write_json(tmp_path / "corpus" / "manifest.json", {})
    with pytest.raises(UserError, match=r"is only the parts of a corpus: give '.*/corpus'"):
        open_or_prepare(str(tmp_path / "corpus" / "data"), bert_folder, 16)
    assert prepared == []


def test_a_missing_corpus_is_reported(prepared, bert_folder):
    with pytest.raises(UserError, match="does not exist"):
        open_or_prepare(str(Path("/no/such")), bert_folder, 16)
