"""Broken input of many kinds: each gives a count under a reason or one clear sentence."""

from __future__ import annotations

import gzip
import io
import json
import os
import zipfile

import pyarrow as pa
import pytest
from read_inputs import parquet, raw_text, read_all, run_prepare

from cotbert_core.errors import UserError
from pipelines.reading import delimited
from pipelines.reading.sources import plan

GOOD = "Two dogs run\n"
PLENTY = "".join(f"{n * n} dogs saw a man in {n * 7919 % 10007}\n" for n in range(20_000)).encode()
BAD = b"caf\xe9"  # Latin-1


def damaged_parquet():
    """A whole file by its footer, of which a page in the middle is overwritten."""
    data = bytearray(parquet(text=[str(n) for n in range(5000)]))
    data[40:400] = b"\xff" * 360
    return bytes(data)


def as_zip():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.txt", GOOD)
    return buffer.getvalue()


def zstandard(data):
    return pa.compress(data, codec="zstd", asbytes=True)


# Kind of input: the file's name, its bytes (large ones made when they are needed), the texts that
# are left, the rows dropped by reason.
COUNTED = {
    "text": ("a.txt", b"one\n" + BAD + b"\ntwo\n\n \t \n", ["one", "two"],
             {"invalid_utf8": 1, "empty": 2}),
    "zero bytes": ("a.txt", b"one\nt\0wo\n\0\0\n", ["one"], {"binary": 2}),
    "only control characters": (
        "a.txt", b"one\n\x01\x02 \x7f\n\x08\n", ["one"], {"control_characters": 2},
    ),
    "a 20 MB line": (
        "a.txt", lambda: b"one\n" + b"word " * 4_000_000 + b"\ntwo\n", ["one", "two"],
        {"too_long": 1},
    ),
    "Windows line breaks": ("a.txt", b"one\r\n\r\ntwo\r\n", ["one", "two"], {"empty": 1}),
    "rows too short": ("a.csv", b"n,text\n1,one\n2," + BAD + b"\n2\n\n4,\n5,   \n3,two\n",
                       ["one", "two"], {"invalid_utf8": 1, "null": 1, "empty": 3}),
    "rows of tabs": ("a.tsv", b"text\tn\none\t1\n" + BAD + b"\t2\ntwo\t3\n", ["one", "two"],
                     {"invalid_utf8": 1}),
    "rows too long": ("a.csv", b"text,n\none,1\nyes, two,2\nthree,3,,\n", ["one", "three"],
                      {"extra_cells": 1}),
    "a quote left open": ("a.csv", b'text,n\none,1\n"two,2\nthree,3\nfour,4\n', ["one"],
                          {"unclosed_quote": 3}),
    "old Macintosh line breaks": ("a.csv", b"text,n\rone,1\rtwo,2\r", ["one", "two"], {}),
    "a header alone": ("a.csv", b"text,n\n", [], {}),
    "an empty file": ("a.txt", b"", [], {}),
    "an empty compressed file": ("a.jsonl.zst", b"", [], {}),
    "JSON": (
        "a.jsonl",
        b'{"text": "one"}\n{"text": "' + BAD + b'"}\n{"text": "\\ud800"}\n{"text": null}\n'
        b'{"text": ""}\n{"text": " \\n "}\n\n{"text": "two"}\n{"text": 5}\n{"text": ["a"]}\n'
        b'{"text": true}\n{"title": "a"}\n["text"]\n"text"\n17\nnull\n{"text": "half\n'
        b"{'text': 'a'}\n" + b"[" * 100_000 + b'\n{"text": "three", "more": {}}',
        ["one", "two", "three"],
        {"invalid_utf8": 2, "null": 1, "empty": 3, "not_text": 3, "no_text_column": 1,
         "invalid_json": 7},
    ),
    "JSON with NaN": ("a.jsonl", b'{"text": NaN}\n{"text": "one", "n": NaN}\n{"text": -Infinity}',
                      ["one"], {"not_text": 2}),
    "JSON with a key twice": (
        "a.jsonl", b'{"text": "one", "text": "two"}\n{"text": "one", "a": {"text": 1}}\n', ["one"],
        {"duplicate_key": 1},
    ),
    "a column of nulls": ("a.parquet", parquet(text=pa.nulls(3)), [], {"null": 3}),
    "text in a dictionary": (
        "a.parquet", parquet(text=pa.array(["one", None, "one"]).dictionary_encode()),
        ["one", "one"], {"null": 1},
    ),
    "text in Parquet that is no UTF-8": (
        "a.parquet", parquet(text=raw_text([b"one", BAD, None, b"", b" \t", b"a\0b"])), ["one"],
        {"invalid_utf8": 1, "null": 1, "empty": 2, "binary": 1},
    ),
}  # fmt: skip
# Kind of input: the file's name, its bytes, what the sentence says.
TOLD = {
    "gzip cut short": ("a.txt.gz", gzip.compress(PLENTY)[:-2000],
                       r"a\.txt\.gz' cannot be read to its end \(Truncated compressed stream\)"),
    "zstandard cut short": ("a.txt.zst", zstandard(PLENTY)[:-9],
                            r"a\.txt\.zst' cannot be read to its end \(Truncated compressed"),
    "gzip cut after a few bytes": ("a.csv.gz", gzip.compress(PLENTY)[:5],
                                   r"a\.csv\.gz' cannot be read .*Truncated compressed stream"),
    "UTF-16": ("a.txt", GOOD.encode("utf-16"), "is UTF-16: give --encoding utf-16, or"),
    "UTF-16 without a mark": ("a.txt", (GOOD * 9).encode("utf-16-le"),
                              "is UTF-16-LE: give --encoding utf-16-le, or"),
    "UTF-16, swapped, without a mark": ("a.jsonl", '{"text": "one"}'.encode("utf-16-be"),
                                        "is UTF-16-BE: give --encoding utf-16-be, or"),
    "UTF-32": ("a.txt", GOOD.encode("utf-32"), "is UTF-32: give --encoding utf-32, or"),
    "a name in the header twice": ("a.csv", b"text,n,text\none,1,two\n",
                                   r"has 2 columns 'text': rename them"),
    "an empty csv": ("a.csv", b"", "has no column 'text': it has none"),
    "a header that is not UTF-8": (
        "a.csv", "Größe,n\nzwölf,1\n".encode("latin-1"),
        r"the header of .*a\.csv' is not UTF-8 \(perhaps 'Größe,n'\): give --encoding latin-1",
    ),
    "a name in the header with a blank": (
        "a.csv", b"text ,n\none,1\n", r"has no column 'text' but 'text ', with blanks around it or",
    ),
    "a csv without a header": ("a.csv", b"Two dogs run\n", "has no column 'text': it has Two dogs"),
    "Parquet cut short": ("a.parquet", parquet(text=["one"])[:-20], "is not a whole Parquet file"),
    "Parquet by its name alone": ("a.parquet", PLENTY, "is not a whole Parquet file"),
    "a damaged page of Parquet": ("a.parquet", damaged_parquet(), "cannot be read to its end"),
    "a column of bytes": ("a.parquet", parquet(text=[b"one"]),
                          "column 'text' is of type binary: it must be text"),
    "a column of lists": ("a.parquet", parquet(text=[["a"]]),
                          "is of type list.*: it must be text; write it as text, or name another"),
    "a column of numbers": ("a.parquet", parquet(text=[1]), "it must be text"),
    "gzip named .txt": ("a.txt", gzip.compress(PLENTY),
                        r"is gzip, not text: name it '.*/a\.txt\.gz'"),
    "zstandard named .csv": ("a.csv", zstandard(PLENTY),
                             r"is zstandard, not text: name it '.*/a\.csv\.zst'"),
    "zeros after gzip": ("a.txt.gz", gzip.compress(GOOD.encode()) + bytes(20), "copy it again or"),
    "text named .gz": ("a.txt.gz", PLENTY, r"is not gzip but text: name it '.*/a\.txt'"),
    "text named .zst": ("a.jsonl.zst", b'{"text": "one"}\n',
                        r"is not zstandard but text: name it '.*/a\.jsonl'"),
    "gzip within gzip": ("a.txt.gz", gzip.compress(gzip.compress(PLENTY)),
                         "holds gzip inside its compression: unpack it"),
    "Parquet named .txt": ("a.txt", parquet(text=["one"]),
                           r"is Parquet, not text: name it '.*/a\.parquet'"),
    "a zip archive": ("a.txt", as_zip(), "is a zip archive or an office document, not text"),
    "a PDF": ("a.txt", b"%PDF-1.7\n...", "is PDF, not text: unpack it or save it as text first"),
    "semicolons": ("a.csv", b"id;text;score\n1;Two dogs;3,5\n",
                   "is not separated by commas but by semicolons: give --delimiter ';' or, to a "
                   "command without that option, a converted file"),
    "tabs in a csv": ("a.csv", b"id\ttext\n1\tTwo dogs\n", "not separated by commas but by tabs"),
    "commas in a tsv": ("a.tsv", b"id,text\n1,Two dogs\n", "not separated by tabs but by commas"),
}  # fmt: skip


@pytest.mark.parametrize("kind", COUNTED)
def test_rows_that_cannot_be_used_are_counted(tmp_path, kind):
    name, content, *expected = COUNTED[kind]
    (tmp_path / name).write_bytes(content() if callable(content) else content)
    assert list(read_all(tmp_path / name)[:2]) == expected


def test_every_line_after_an_open_quote_is_counted(tmp_path, monkeypatch):
    """Before and after the limit of a cell."""
    monkeypatch.setattr(delimited, "MOST_CELL", 80_000)
    (tmp_path / "a.csv").write_bytes(b'text\none\n"two\n' + b"three\n" * 20_000 + b'"four\n')
    found = read_all(tmp_path)
    assert found.texts[0] == "one"
    assert len(found.texts) + sum(found.dropped.values()) == 20_003
    assert found.dropped["unclosed_quote"] > 12_000


@pytest.mark.parametrize("kind", TOLD)
def test_files_that_cannot_be_read_are_reported_in_a_sentence(tmp_path, kind):
    name, content, message = TOLD[kind]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message) as error:
        read_all(tmp_path / name)
    assert str(tmp_path / name) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_schema_that_changes_between_files(tmp_path):
    (tmp_path / "a.parquet").write_bytes(parquet(text=["one", "two"]))
    (tmp_path / "b.parquet").write_bytes(parquet(title=["one"]))
    with pytest.raises(UserError, match=r"b\.parquet' has no column 'text': it has title"):
        plan([str(tmp_path)])
    (tmp_path / "b.parquet").write_bytes(parquet(text=[1.5]))
    with pytest.raises(UserError, match=r"b\.parquet', column 'text' is of type double"):
        plan([str(tmp_path)])
    (tmp_path / "b.parquet").write_bytes(parquet(n=[1], text=pa.nulls(1)))
    assert read_all(tmp_path)[:2] == (["one", "two"], {"null": 1})


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("name", ["a.txt", "a.csv", "a.parquet", "a.txt.gz"])
def test_a_file_without_rights_is_reported(tmp_path, name):
    (tmp_path / name).write_text(GOOD)
    (tmp_path / name).chmod(0)
    with pytest.raises(UserError, match=r"cannot be read \(Permission denied\): change its"):
        plan([str(tmp_path / name)])


@pytest.mark.usefixtures("without_ray")
def test_the_command_counts_files_without_rows(tmp_path, bert_folder):
    for name, content in (("a.txt", GOOD), ("b.csv", "text\n"), ("c.jsonl", ""), ("d.pdf", "")):
        (tmp_path / name).write_text(content)
    assert run_prepare(tmp_path / "corpus", bert_folder, "--input", tmp_path) == 0
    result = json.loads((tmp_path / "corpus" / "result.json").read_text())
    assert (result["rows"], result["files_ignored"], result["files_without_rows"]) == (1, 1, 2)
