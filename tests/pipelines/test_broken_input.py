"""Broken input of many kinds: each gives a count under a reason or one clear sentence."""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cotbert_core.errors import UserError
from pipelines.cli import main
from pipelines.reading import delimited
from pipelines.reading.readers import read
from pipelines.reading.sources import plan

GOOD = "Two dogs run\n"
PLENTY = "".join(f"{n * n} dogs saw a man in {n * 7919 % 10007}\n" for n in range(20_000)).encode()
TABLE = pa.table({"text": ["one", "two"]})


def parquet(table, **options):
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return sink.getvalue().to_pybytes()


def raw_text(values):
    """A column that says it is text, whatever its bytes are."""
    values = pa.array(values, pa.binary())
    return pa.StringArray.from_buffers(len(values), *values.buffers()[1:], values.buffers()[0])


def damaged_parquet():
    """A whole file by its footer, of which a page in the middle is overwritten."""
    data = bytearray(parquet(pa.table({"text": [str(n) for n in range(5000)]}), compression="zstd"))
    data[40:400] = b"\xff" * 360
    return bytes(data)


# Kind of input: the file's name, its bytes (large ones made when they are needed), the texts that
# are left, the rows dropped by reason.
COUNTED = {
    "byte order mark": ("a.txt", b"\xef\xbb\xbfone\ntwo", ["one", "two"], {}),
    "Latin-1": ("a.txt", "one\ncafé\n".encode("latin-1"), ["one"], {"invalid_utf8": 1}),
    "zero bytes": ("a.txt", b"one\nt\0wo\n\0\0\n", ["one"], {"binary": 2}),
    "only control characters": (
        "a.txt", b"one\n\x01\x02 \x7f\n\x08\n", ["one"], {"control_characters": 2},
    ),
    "a 20 MB line": (
        "a.txt", lambda: b"one\n" + b"word " * 4_000_000 + b"\ntwo\n", ["one", "two"],
        {"too_long": 1},
    ),
    "Windows line breaks": ("a.txt", b"one\r\n\r\ntwo\r\n", ["one", "two"], {"empty": 1}),
    "rows too short": ("a.csv", b"n,text\n1,one\n2\n\n3,two\n", ["one", "two"],
                       {"null": 1, "empty": 1}),
    "rows too long": ("a.csv", b"text,n\none,1\nyes, two,2\nthree,3,,\n", ["one", "three"],
                      {"extra_cells": 1}),
    "a quote left open": ("a.csv", b'text,n\none,1\n"two,2\nthree,3\nfour,4\n', ["one"],
                          {"unclosed_quote": 3}),
    "a quote left open before much": (
        "a.csv", lambda: b'text\none\n"two\n' + b"three\n" * 20_000 + b'"four\n', None, None,
    ),
    "old Macintosh line breaks": ("a.csv", b"text,n\rone,1\rtwo,2\r", ["one", "two"], {}),
    "a header alone": ("a.csv", b"text,n\n", [], {}),
    "an empty file": ("a.txt", b"", [], {}),
    "an empty compressed file": ("a.jsonl.zst", b"", [], {}),
    "JSON that is no object": ("a.jsonl", b'["one"]\n"two"\n3\nnull\n{"text": "one"}\n', ["one"],
                               {"invalid_json": 4}),
    "JSON nested deep": (
        "a.jsonl", b'{"text": "one", "a": ' + b"[" * 100_000 + b"\n\"", [], {"invalid_json": 2},
    ),
    "JSON with NaN": ("a.jsonl", b'{"text": NaN}\n{"text": "one", "n": NaN}\n{"text": -Infinity}',
                      ["one"], {"not_text": 2}),
    "JSON with a key twice": (
        "a.jsonl", b'{"text": "one", "text": "two"}\n{"text": "one", "a": {"text": 1}}\n', ["one"],
        {"duplicate_key": 1},
    ),
    "JSON with half a character": ("a.jsonl", b'{"text": "one"}\n{"text": "\\ud83d"}', ["one"],
                                   {"invalid_utf8": 1}),
    "JSON cut short": ("a.jsonl", b'{"text": "one"}\n{"text": "tw', ["one"], {"invalid_json": 1}),
    "a column of nulls": ("a.parquet", parquet(pa.table({"text": pa.nulls(3)})), [], {"null": 3}),
    "text in a dictionary": (
        "a.parquet",
        parquet(pa.table({"text": pa.array(["one", None, "one"]).dictionary_encode()})),
        ["one", "one"], {"null": 1},
    ),
    "text in Parquet that is no UTF-8": (
        "a.parquet", parquet(pa.table({"text": raw_text([b"one", b"\xff", b"a\0b"])})), ["one"],
        {"invalid_utf8": 1, "binary": 1},
    ),
}  # fmt: skip
# Kind of input: the file's name, its bytes, what the sentence says.
TOLD = {
    "gzip cut short": ("a.txt.gz", gzip.compress(PLENTY)[:-2000],
                       r"a\.txt\.gz' cannot be read to its end \(Truncated compressed stream\)"),
    "zstandard cut short": ("a.jsonl.zst", pa.compress(PLENTY, codec="zstd", asbytes=True)[:-9],
                            r"a\.jsonl\.zst' cannot be read to its end \(Truncated compressed"),
    "gzip cut after a few bytes": ("a.csv.gz", gzip.compress(PLENTY)[:5],
                                   r"a\.csv\.gz' cannot be read .*Truncated compressed stream"),
    "UTF-16": ("a.txt", GOOD.encode("utf-16"), "is UTF-16: give --encoding utf-16$"),
    "UTF-16 with the bytes swapped": ("a.csv", b"\xfe\xff" + "text\none".encode("utf-16-be"),
                                      "is UTF-16: give --encoding utf-16$"),
    "UTF-16 without a mark": ("a.txt", (GOOD * 9).encode("utf-16-le"),
                              "is UTF-16-LE: give --encoding utf-16-le$"),
    "UTF-16, swapped, without a mark": ("a.jsonl", b'{"text": "one"}'.decode().encode("utf-16-be"),
                                        "is UTF-16-BE: give --encoding utf-16-be$"),
    "UTF-16 compressed": ("a.tsv.gz", gzip.compress("text\none".encode("utf-16")), "is UTF-16"),
    "UTF-32": ("a.txt", GOOD.encode("utf-32"), "is UTF-32: give --encoding utf-32$"),
    "a name in the header twice": ("a.csv", b"text,n,text\none,1,two\n",
                                   r"has 2 columns 'text': rename them"),
    "an empty csv": ("a.csv", b"", "has no column 'text': it has none"),
    "a csv without a header": ("a.csv", b"Two dogs run\n", "has no column 'text': it has Two dogs"),
    "Parquet cut short": ("a.parquet", parquet(TABLE)[:-20], "is not a whole Parquet file"),
    "Parquet by its name alone": ("a.parquet", PLENTY, "is not a whole Parquet file"),
    "a damaged page of Parquet": ("a.parquet", damaged_parquet(), "cannot be read to its end"),
    "a column of bytes": ("a.parquet", parquet(pa.table({"text": [b"one"]})),
                          "column 'text' is of type binary: it must be text"),
    "a column of numbers": ("a.parquet", parquet(pa.table({"text": [1]})), "it must be text"),
}  # fmt: skip


def read_all(path):
    """Texts, rows read and dropped by reason."""
    made = plan([str(path)])
    pieces = [piece for shard in made.shards for piece in read(shard, made)]
    dropped = sum((p.dropped for p in pieces), Counter())
    return [t for p in pieces for t in p.texts], sum(p.read for p in pieces), dict(dropped)


@pytest.mark.parametrize("kind", COUNTED)
def test_rows_that_cannot_be_used_are_counted(tmp_path, kind, monkeypatch):
    name, content, texts, dropped = COUNTED[kind]
    (tmp_path / name).write_bytes(content() if callable(content) else content)
    if texts is None:
        monkeypatch.setattr(delimited, "MOST_CELL", 80_000)
    found, count, reasons = read_all(tmp_path / name)
    if texts is None:  # every line of the rest is reported, before and after the cell's limit
        assert found[0] == "one"
        assert count == 20_003 == len(found) + sum(reasons.values())
        assert reasons["unclosed_quote"] > 12_000
    else:
        assert (found, reasons) == (texts, dropped)
        assert count == len(texts) + sum(dropped.values())


@pytest.mark.parametrize("kind", TOLD)
def test_files_that_cannot_be_read_are_reported_in_a_sentence(tmp_path, kind):
    name, content, message = TOLD[kind]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message) as error:
        read_all(tmp_path / name)
    assert str(tmp_path / name) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_schema_that_changes_between_files(tmp_path):
    pq.write_table(TABLE, tmp_path / "a.parquet")
    pq.write_table(pa.table({"title": ["one"]}), tmp_path / "b.parquet")
    with pytest.raises(UserError, match=r"b\.parquet' has no column 'text': it has title"):
        plan([str(tmp_path)])
    pq.write_table(pa.table({"text": [1.5]}), tmp_path / "b.parquet")
    with pytest.raises(UserError, match=r"b\.parquet', column 'text' is of type double"):
        plan([str(tmp_path)])
    pq.write_table(pa.table({"n": [1], "text": pa.nulls(1)}), tmp_path / "b.parquet")
    assert read_all(tmp_path) == (["one", "two"], 3, {"null": 1})


def make_folder(home, kind):
    """An input that is no ordinary file."""
    path = home / "x.txt"
    if kind in ("a folder named as a file", "a folder of other files", "an empty folder"):
        path.mkdir()
    if kind == "a folder named as a file":
        (path / "a.txt").write_text(GOOD)
    elif kind == "a folder of other files":
        (path / "a.pdf").write_text(GOOD)
    elif kind == "a link to nothing":
        path.symlink_to(home / "gone")
    elif kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a name that is not UTF-8":
        path = home / os.fsdecode(b"caf\xe9.txt")
        path.write_text(GOOD)
    return path


PLACES = {
    "an empty folder": "x.txt' holds no file of a known kind",
    "a folder of other files": "x.txt' holds no file of a known kind",
    "a link to nothing": "x.txt' is a link to '.*gone', which is not there",
    "a pipe": "x.txt' is a pipe or a device: give a file",
    "a name that is not UTF-8": "has a name that is not UTF-8: rename it",
    "nothing at all": "x.txt' does not exist or matches no file",
}


@pytest.mark.parametrize("kind", PLACES)
def test_places_that_hold_no_file_are_reported(tmp_path, kind):
    with pytest.raises(UserError, match=PLACES[kind]):
        plan([str(make_folder(tmp_path, kind))])


def test_a_device_is_refused():
    with pytest.raises(UserError, match="'/dev/null' is a pipe or a device: give a file"):
        plan(["/dev/null"])


def test_a_folder_may_be_named_as_a_file(tmp_path):
    assert read_all(make_folder(tmp_path, "a folder named as a file"))[0] == [GOOD.strip()]


@pytest.mark.parametrize("kind", ["a link to nothing", "a pipe"])
def test_what_is_no_file_in_a_folder_is_counted(tmp_path, kind):
    make_folder(tmp_path, kind)
    (tmp_path / "a.txt").write_text(GOOD)
    found = plan([str(tmp_path)])
    assert (found.files, found.ignored) == ([str(tmp_path / "a.txt")], 1)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("name", ["a.txt", "a.csv", "a.parquet", "a.txt.gz"])
def test_a_file_without_rights_is_reported(tmp_path, name):
    (tmp_path / name).write_text(GOOD)
    (tmp_path / name).chmod(0)
    with pytest.raises(UserError, match=r"cannot be read \(Permission denied\): change its"):
        plan([str(tmp_path / name)])


@pytest.mark.usefixtures("without_ray")
@pytest.mark.parametrize(
    "kind", ["gzip cut short", "UTF-16", "a name in the header twice", "a damaged page of Parquet"]
)
def test_the_command_ends_with_one_sentence(tmp_path, bert_folder, capsys, kind):
    name, content, _ = TOLD[kind]
    (tmp_path / name).write_bytes(content)
    command = ["prepare", "--input", str(tmp_path / name), "--encoder", bert_folder]
    assert main([*command, "--output", str(tmp_path / "corpus")]) == 2
    captured = capsys.readouterr()
    (line,) = [line for line in captured.err.splitlines() if not line.startswith("prepare ")]
    assert line.startswith(f"cotbert: input '{tmp_path / name}'") or "has 2 columns" in line
    assert captured.out == ""
    assert [p.name for p in tmp_path.iterdir()] == [name]


@pytest.mark.usefixtures("without_ray")
def test_the_command_counts_files_without_rows(tmp_path, bert_folder, capsys):
    for name, content in (("a.txt", GOOD), ("b.csv", "text\n"), ("c.jsonl", ""), ("d.pdf", "")):
        (tmp_path / name).write_text(content)
    out = tmp_path / "corpus"
    command = ["prepare", "--input", str(tmp_path), "--encoder", bert_folder]
    assert main([*command, "--output", str(out)]) == 0
    result = json.loads((out / "result.json").read_text())
    assert (result["rows"], result["files_ignored"], result["files_without_rows"]) == (1, 1, 2)
