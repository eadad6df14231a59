"""Warnings about input: how many rows a file loses, why, what to do; and pages full of tags."""

from __future__ import annotations

import json

import pytest
from read_inputs import run_prepare

from pipelines.reading import lost_rows
from pipelines.reading.content_checks import has_markup
from pipelines.reading.text_files import read_texts

GOOD = [f"{n} dogs run" for n in range(300)]


def warnings(capsys):
    lines = capsys.readouterr().err.splitlines()
    return [line.removeprefix("warning: ") for line in lines if line.startswith("warning: ")]


def written(path, data):
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


LOSSES = {
    "unclosed quote": ("a.csv", "text,n\n" + "".join(f"{t},1\n" for t in GOOD) + '"open,1\nx,2\n',
                       "lost 2 of 302 rows (0.7 %): 2 from row 301 on come after a quote that is "
                       "never closed: close it, or double a quote that is part of a cell"),
    "extra cells": ("a.csv", "text,n\n" + "".join(f"{t},1\n" for t in GOOD) + "a, b,1\n" * 4,
                    "lost 4 of 304 rows (1.3 %): 4 have more cells than the header"),
    "bad JSON": ("a.jsonl", "".join(json.dumps({"text": t}) + "\n" for t in GOOD) + "{\n" * 9,
                 "lost 9 of 309 rows (2.9 %): 9 are not JSON objects: write one on each line, as "
                 "`jq -c '.[]'` does with a list"),
    "a long line": ("a.txt", "\n".join(GOOD[:20]) + "\n" + "a " * 500_001,
                    "lost 1 of 21 rows (4.8 %): 1 have more than 1,000,000 characters: divide"),
    "half a character": ("a.jsonl", '{"text": "ok"}\n{"text": "\\ud83d"}\n',
                         r"1 hold half a character, an escape such as \ud83d alone: write both"),
    "lists": ("a.jsonl", "".join(json.dumps({"text": t}) + "\n" for t in [*GOOD, *[["a"]] * 4]),
              "4 hold a number, a list or an object in place of text: make it a text first"),
    "zero bytes": ("a.txt", "\n".join(GOOD) + "\n" + "a\0b\n" * 5,
                   "lost 5 of 305 rows (1.6 %): 5 hold zero bytes"),
    "mixed": ("a.txt", "\n".join(GOOD).encode() + "\ncafé\n".encode() + "café\n".encode("latin-1"),
              "1 are not UTF-8, though others are (such as 'café'): correct those lines"),
    "one of many": ("a.txt", "\n".join(GOOD).encode() + "\ncafé".encode("latin-1"),
                    "lost 1 of 301 rows (0.3 %): 1 are not UTF-8 but read as latin-1 ('café')"),
    "Japanese": ("a.csv", b"text\nok\n" + "こんにちは、世界\n".encode("shift_jis") * 3,
                 "3 are not UTF-8 but read as shift_jis ('こんにちは、世界'): give --encoding"),
}  # fmt: skip


@pytest.mark.usefixtures("without_ray")
@pytest.mark.parametrize("kind", LOSSES)
def test_prepare_says_what_a_file_loses(tmp_path, bert_folder, capsys, kind):
    name, data, message = LOSSES[kind]
    path, out = written(tmp_path / name, data), tmp_path / "out"
    assert run_prepare(out, bert_folder, "--input", path) == 0
    (warning,) = warnings(capsys)
    assert warning.startswith(f"input '{path}' lost ")
    assert message in warning
    assert json.loads((out / "manifest.json").read_text())["warnings"] == [warning]
    read_texts(str(path))  # which the driver of other jobs reads
    assert warnings(capsys) == [warning]


@pytest.mark.parametrize(("kind", "sign"), [("csv", ","), ("tsv", "\t")])
def test_texts_that_line_breaks_without_quotes_split_are_kept_and_counted(
    tmp_path, capsys, kind, sign
):
    """A text's first half is a row without the cells after the text."""
    rows = "".join(f"{t}{sign}1\n" for t in ("text", *GOOD))
    for count, warned in ((3, False), (4, True)):
        path = written(tmp_path / f"a.{kind}", rows + f"Dear shop\nit is late{sign}1\n" * count)
        assert read_texts(str(path)).sentences == [*GOOD, *["Dear shop", "it is late"] * count]
        warning = (
            f"input '{path}' has fewer cells than the header in 4 of 308 rows (1.3 %), the first "
            "row 301: if a line break within a text has split it, write a csv with its texts in "
            "quotes"
        )
        assert warnings(capsys) == [warning] * warned


@pytest.mark.parametrize(
    ("name", "data"), [("a.txt", "a\rb\rc\r"), ("a.jsonl", '{"text": "a"}\r{"text": "b"}\r')]
)
def test_a_file_with_carriage_returns_alone_gets_a_warning(tmp_path, capsys, name, data):
    path = written(tmp_path / name, data)
    written(tmp_path / "b.txt", "one\r")
    written(tmp_path / "c.txt", "a\r\nb\r\n")
    read_texts(str(tmp_path))
    warning, *others = warnings(capsys)
    assert len(others) == (name == "a.jsonl"), "its only row is not JSON"
    assert warning.startswith(f"input '{path}' holds carriage returns and no line feeds, so that")
    assert warning.endswith(r"for example with `tr '\r' '\n'`")


def test_up_to_one_percent_and_empty_rows_are_no_news(tmp_path, capsys):
    lines = [json.dumps({"text": t}) for t in GOOD]
    for bad, warned in ((3, 0), (4, 1)):
        written(tmp_path / "a.jsonl", "\n".join([*lines, *["{"] * bad, *[""] * 90]))
        assert read_texts(str(tmp_path)).dropped == {"invalid_json": bad, "empty": 89}
        assert len(warnings(capsys)) == warned


def test_a_single_row_that_is_not_in_the_given_encoding_is_news(tmp_path, capsys):
    path = written(tmp_path / "a.txt", "\n".join(GOOD).encode() + b"\n\x81")
    read_texts(str(path), encoding="cp1252")
    (warning,) = warnings(capsys)
    assert "1 are invalid in the given encoding: give another --encoding" in warning


def test_many_files_are_counted_together(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(lost_rows, "MOST_FILES", 2)
    for number in range(5):
        written(tmp_path / f"{number}.txt", "one\ncafé\n".encode("latin-1"))
    read_texts(str(tmp_path))
    lines = warnings(capsys)
    assert len(lines) == 3
    assert lines[2] == f"3 more files lost 3 rows, the first '{tmp_path / '2.txt'}'"


def test_a_far_row_is_found_without_all_before_it(tmp_path, capsys, monkeypatch):
    """Its shard is read from a little before the first bad row."""
    seen = []
    original = lost_rows.guess_encoding

    def guess(lines):
        kept = list(lines)
        seen.append(len(kept))
        return original(kept)

    monkeypatch.setattr(lost_rows, "guess_encoding", guess)
    monkeypatch.setattr(lost_rows, "LINES_BEFORE", 500)
    data = b"plain\n" * (3 * lost_rows.LINES_BEFORE) + "café\n".encode("latin-1")
    read_texts(str(written(tmp_path / "a.txt", data)))
    assert "read as latin-1 ('café')" in warnings(capsys)[0]
    assert seen == [lost_rows.LINES_BEFORE + 1]


PAGE = """<!DOCTYPE html>
<html><head><title>Dogs</title><style>p {color: red}</style></head>
<body><p>Two dogs run.</p><p class="x">A man sings.</p></body></html>
"""
REVIEWS = "".join(f"A film of {n} dogs.<br /><br />It ends well.\n" for n in range(9))


@pytest.mark.parametrize(
    ("text", "markup"),
    [(PAGE, True), (REVIEWS, True), ("\n\n  <HTML lang=en>\n", True),
     ('a\n"x <p>y</p>"\n<b>z', True),
     ("a < b and c > d\nI <3 you\nList<String>\n", False), ("Two dogs run\n" * 50, False),
     ("Use <b> for bold.\n" + "Two dogs run.\n" * 40, False), ("", False)],
)  # fmt: skip
def test_markup_is_noticed_where_many_lines_have_tags(text, markup):
    assert has_markup(text.encode()) == markup


@pytest.mark.parametrize(
    "text", ['{"text": "Two dogs"}\n', '\ufeff[\n {\n  "a" :', "{a: 1}", '["a"]']
)
def test_json_in_a_txt_file_is_noticed(tmp_path, capsys, text):
    path = written(tmp_path / "a.txt", text)
    read_texts(str(path))
    note = (
        f"input '{path}' holds JSON, whose names and brackets become part of the texts: rename it "
        "to .jsonl if each line is an object, and else convert it ('Other formats' in "
        "docs/settings.md)"
    )
    assert warnings(capsys) == [note] * ('"' in text and ":" in text)


@pytest.mark.usefixtures("without_ray")
def test_prepare_names_the_step_that_removes_markup(tmp_path, bert_folder, capsys):
    home = tmp_path / "in"
    home.mkdir()
    page = written(home / "page.txt", PAGE)
    written(home / "reviews.txt", REVIEWS)
    note = (
        f"input '{page}' and 1 more hold HTML tags, which become part of the texts: --clean markup "
        "of prepare, adapt and embed removes them"
    )
    for name, words, expected in (("a", [], [note]), ("b", ["--clean", "markup"], [])):
        assert run_prepare(tmp_path / name, bert_folder, "--input", home, *words) == 0
        manifest = json.loads((tmp_path / name / "manifest.json").read_text())
        assert warnings(capsys) == manifest.get("warnings", []) == expected
