"""Raw text for --corpus: prepared once, found again, prepared again when anything differs."""

from __future__ import annotations

import json
import os

import pytest

from cotbert_core.errors import UserError
from cotbert_core.files import write_json
from pipelines.cli import main
from pipelines.commands import corpus_cache
from pipelines.commands.corpus_cache import cache_folder, open_or_prepare
from pipelines.recipes import RECIPES
from pipelines.runtime.auth_token import default_path

MANIFEST = {"rows": 7, "max_length": 32, "encoder": "bert", "tokenizer_hash": "0"}


@pytest.fixture
def prepared(tmp_path, monkeypatch):
    """The folders that would have been prepared, with nothing but a manifest written there."""
    folders = []

    def prepare(options, folder):
        assert not folder.exists()
        folder.mkdir(parents=True)
        made = {**vars(options), "clean": vars(options.clean)}
        write_json(folder / "manifest.json", {**MANIFEST, "options": made})
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
        ({"COTBERT_CACHE": "", "XDG_CACHE_HOME": "", "HOME": "/h"}, "/h/.cache/cotbert"),
    ],
)
def test_where_the_cache_is(monkeypatch, variables, expected):
    for name in ("COTBERT_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert str(cache_folder()) == expected


def test_without_a_home_folder_home_is_to_be_set(monkeypatch):
    for name in ("COTBERT_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 987_654)
    for folder in (cache_folder, default_path):
        with pytest.raises(UserError, match=r"user 987654 has no home folder: set HOME to"):
            folder()


def test_a_cache_that_cannot_be_written_is_named(text, prepared, bert_folder, monkeypatch):
    monkeypatch.setenv("COTBERT_CACHE", "/proc/none")
    with pytest.raises(UserError, match=r"'/proc/none', in which .* set COTBERT_CACHE to"):
        open_or_prepare(str(text), bert_folder, 16)
    assert prepared == []


def test_raw_text_without_the_texts_of_a_method_is_not_prepared(text, prepared, bert_folder):
    method = RECIPES["simcse-supervised"]().method
    with pytest.raises(UserError, match=rf"corpus '{text}' has no column 'augmented_text', which"):
        open_or_prepare(str(text), bert_folder, 16, method=method)
    assert prepared == []


@pytest.mark.parametrize(
    "command",
    ["train denosent-base", "compare simcse-base denosent-base", "tune denosent-dropout"],
)
def test_raw_text_is_not_prepared_for_fewer_steps_than_the_warm_up(
    text, prepared, bert_folder, tmp_path, capsys, command
):
    words = [*command.split(), "--corpus", str(text), "--encoder", bert_folder, "--steps", "1"]
    assert main([*words, "--output", str(tmp_path / "out")]) == 2
    assert "warmup_steps is 500 and the run has 1 step: give" in capsys.readouterr().err
    assert prepared == []


def test_a_prepared_corpus_is_opened_where_it_is(tmp_path, prepared, bert_folder):
    write_json(tmp_path / "manifest.json", MANIFEST)
    assert len(open_or_prepare(str(tmp_path), bert_folder, 32)) == 7
    assert prepared == []


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ({"augmented_column": "b"}, "augmented_column is 'b' and corpus '.*' is prepared, so its"),
        (
            {"augmented_column": "b", "labelled": "labels.csv"},
            "leave out --augmented-column, or give",
        ),
        ({"text_column": "b"}, "text_column is 'b'"),
        ({"encoding": "latin-1"}, "encoding is 'iso8859-1'"),
        ({"delimiter": ";"}, "delimiter is ';'"),
        ({"text_column": "b", "delimiter": ";", "labelled": "labels.csv"}, None),
    ],
)
def test_a_prepared_corpus_is_not_read_in_another_way(
    tmp_path, prepared, bert_folder, given, refused
):
    write_json(tmp_path / "manifest.json", MANIFEST)
    if refused is None:  # they are those of the labelled texts
        assert len(open_or_prepare(str(tmp_path), bert_folder, 32, **given)) == 7
        return
    with pytest.raises(UserError, match=refused):
        open_or_prepare(str(tmp_path), bert_folder, 32, **given)


@pytest.mark.parametrize("given", [{"text_column": "question"}, {"delimiter": ";"}])
def test_the_options_of_labelled_texts_do_not_concern_plain_text(
    text, prepared, bert_folder, given
):
    with pytest.raises(UserError, match=r"leave out --(text-column|delimiter)"):
        open_or_prepare(str(text), bert_folder, 16, **given)
    open_or_prepare(str(text), bert_folder, 16, labelled="labels.csv", **given)
    assert len(prepared) == 1


def test_raw_text_is_prepared_once(text, prepared, bert_folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    first = open_or_prepare(str(text), bert_folder, 16)
    again = open_or_prepare("a.txt", bert_folder, 16)
    assert first.path == again.path == prepared[0]
    assert len(prepared) == 1
    assert prepared[0].is_relative_to(tmp_path / "cache" / "corpora")
    said = capsys.readouterr().err.splitlines()
    assert said == [
        f"preparing {text} into {first.path}",
        f"corpus a.txt was prepared before: {first.path}",
    ]
    options = json.loads((first.path / "manifest.json").read_text())["options"]
    assert (options["inputs"], options["max_length"]) == ([str(text)], 16)


def test_another_path_to_the_same_text_finds_it_and_the_same_path_to_another_does_not(
    prepared, bert_folder, tmp_path, monkeypatch
):
    old, new = tmp_path / "old", tmp_path / "new"
    for folder in (old, new):
        (folder / "in").mkdir(parents=True)
        (folder / "a.txt").write_text("one\ntwo\n")
        os.utime(folder / "a.txt", (1, 1))
    (tmp_path / "link").symlink_to("old")
    monkeypatch.chdir(old / "in")
    for path in ("../a.txt", "../../old/a.txt", old / "a.txt", "../../link/a.txt"):
        open_or_prepare(str(path), bert_folder, 16)
    assert len(prepared) == 1
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("new")
    open_or_prepare("../../link/a.txt", bert_folder, 16)
    assert len(prepared) == 2


@pytest.mark.parametrize("change", ["content", "time", "length", "column", "encoder", "version"])
def test_what_differs_is_prepared_again(
    text, prepared, bert_folder, roberta_folder, monkeypatch, change
):
    if change == "column":
        text = text.with_suffix(".tsv")
        text.write_text("text\ttitle\none\ttwo\n")
    open_or_prepare(str(text), bert_folder, 16)
    if change == "content":
        stat = text.stat()
        text.write_text("one\ntwo\nthree\n")
        os.utime(text, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    elif change == "time":
        os.utime(text, (1, 1))
    elif change == "version":
        monkeypatch.setattr(corpus_cache, "__version__", "99")
    encoder = roberta_folder if change == "encoder" else bert_folder
    column = "title" if change == "column" else "text"
    open_or_prepare(str(text), encoder, 17 if change == "length" else 16, column)
    assert len(prepared) == len(set(prepared)) == 2


def options_of(folder):
    options = json.loads((folder / "manifest.json").read_text())["options"]
    return [options[f"{name}_column"] for name in ("text", "augmented", "negative")]


def test_paired_texts_are_part_of_what_is_known(tmp_path, prepared, bert_folder):
    path = tmp_path / "a.csv"
    path.write_text("text,a,b\nx,y,z\n")
    pairs = [(None, None), ("a", None), ("b", None), ("a", "b"), ("b", "a")]
    for _ in range(2):
        for augmented, negative in pairs:
            named = {"augmented_column": augmented, "negative_column": negative}
            open_or_prepare(str(path), bert_folder, 16, **named)
    assert list(map(options_of, prepared)) == [["text", *pair] for pair in pairs]
    open_or_prepare(str(path), bert_folder, 16, "text,a")
    assert len(prepared) == len(pairs) + 1, "joined to one text, not a second one"


def test_a_file_of_triples_needs_no_options(tmp_path, prepared, bert_folder, capsys):
    path = tmp_path / "a.csv"
    path.write_text("sent0,sent1,hard_neg\nx,y,z\n")
    first = open_or_prepare(str(path), bert_folder, 16)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"{path}: reading columns sent0, sent1, hard_neg as triples"
    named = {"augmented_column": "sent1", "negative_column": "hard_neg"}
    again = open_or_prepare(str(path), bert_folder, 16, "sent0", **named)
    assert first.path == again.path == prepared[0]
    assert options_of(first.path) == ["sent0", "sent1", "hard_neg"]


def test_a_folder_may_be_raw_text_but_the_parts_of_a_corpus_are_none(
    tmp_path, prepared, bert_folder
):
    (tmp_path / "corpus" / "data").mkdir(parents=True)
    write_json(tmp_path / "corpus" / "manifest.json", {})
    for folder, message in {
        tmp_path / "corpus" / "data": r"is only the parts of a corpus: give '.*/corpus'",
        "/no/such": "does not exist",
    }.items():
        with pytest.raises(UserError, match=message):
            open_or_prepare(str(folder), bert_folder, 16)
    assert prepared == []
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("one\n")
    open_or_prepare(str(tmp_path / "texts"), bert_folder, 16)
    assert len(prepared) == 1
