"""Files at any place: compressed, behind a URI, in a bucket; the same rows from each of them."""

from __future__ import annotations

import gzip
import os
from itertools import product

import pyarrow as pa
import pytest
from read_inputs import read_all

from cotbert_core.errors import UserError
from pipelines.reading import line_reader
from pipelines.reading.locations import suffixes
from pipelines.reading.sources import plan

CONTENT = {
    "txt": b"one\n\ntwo dogs\n caf\xe9\nthree",
    "csv": b'n,text\n1,one\n2,\n3,"two\r\ndogs"\n4,caf\xe9\n5,three\n',
    "tsv": b"text\tn\none\t1\n\t2\ntwo dogs\t3\ncaf\xe9\t4\nthree\t5",
    "jsonl": b'{"text": "one"}\n\n{"text": "two\\ndogs"}\n{"text": "caf\xe9"}\n{"text": "three"}',
}
TEXTS, DROPPED = ["one", "two dogs", "three"], {"empty": 1, "invalid_utf8": 1}


def packed(content, compression):
    if compression == "gz":
        return gzip.compress(content)
    return pa.compress(content, codec="zstd", asbytes=True) if compression else content


@pytest.mark.parametrize("address", ["{}", "file://{}"])
@pytest.mark.parametrize("compression", ["", "gz", "zst"])
@pytest.mark.parametrize("kind", CONTENT)
def test_the_rows_are_the_same_wherever_a_file_lies(tmp_path, kind, compression, address):
    path = tmp_path / f"a.{kind}{'.' if compression else ''}{compression}"
    path.write_bytes(packed(CONTENT[kind], compression))
    assert read_all(address.format(path))[:2] == (TEXTS, DROPPED)
    shards = plan([address.format(path)], shard_bytes=4).shards
    is_cut = kind in ("txt", "jsonl") and not compression and address == "{}"
    assert (len(shards) > 1) is is_cut, "what is compressed or elsewhere is one shard"


def test_streams_of_several_parts_are_read_to_the_end(tmp_path):
    for compression in ("gz", "zst"):
        path = tmp_path / f"a.txt.{compression}"
        path.write_bytes(packed(b"one\ntw", compression) + packed(b"o dogs\nthree", compression))
        assert read_all(path).texts == TEXTS


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"\n\n", b"a", b"a\n", b"ab\n\ncdefgh\ni", b"abcdefgh"]
)
def test_lines_out_of_blocks_cut_anywhere(monkeypatch, data):
    parts = data.removesuffix(b"\n").split(b"\n") if data else []
    for most, size in product([0, 1, 3, 100], [1, 2, 3, 100]):
        monkeypatch.setattr(line_reader, "MOST_LINE_BYTES", most)
        blocks = [data[start : start + size] for start in range(0, len(data), size)]
        expected = [part if len(part) <= most else None for part in parts]
        assert list(line_reader.lines(blocks)) == expected, most


def test_the_endings_of_a_name():
    assert suffixes("/a/b.JSONL.GZ") == (".jsonl", ".gz")
    assert suffixes("s3://b/a.csv.zst?region=x.gz") == (".csv", ".zst")


GLOBS = {
    "": ["a.txt", "b.csv", "deep/c.txt", "deep/deeper/d%20 \u00e9.txt"],
    "**/*": ["a.txt", "b.csv", "deep/c.txt", "deep/deeper/d%20 \u00e9.txt"],
    "*.txt": ["a.txt"],
    "*/?.txt": ["deep/c.txt"],
    "deep/**/*.txt": ["deep/c.txt", "deep/deeper/d%20 \u00e9.txt"],
    "none/": None,
    "*.jsonl": None,
}


@pytest.mark.parametrize("pattern", GLOBS)
def test_folders_and_globs_of_an_address_are_those_of_a_path(tmp_path, pattern):
    for name in GLOBS[""]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("text\n")
    items = (f"{tmp_path}/{pattern}", f"file://{tmp_path}/{pattern}")
    if GLOBS[pattern] is None:
        for item in items:
            with pytest.raises(UserError, match="of a known kind"):
                plan([item])
        return
    for item in items:
        files = [name.partition(f"{tmp_path}/")[2] for name in plan([item]).files]
        assert files == GLOBS[pattern]


def test_an_address_of_another_kind_and_a_folder_without_rights_are_reported(tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"'http://a/b.txt' cannot be reached .*http://a"):
        plan(["http://a/b.txt"])

    def refuse(folder):
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(UserError, match=r"cannot be read \(Permission denied\): change its"):
        plan([str(tmp_path)])
