"""Files at any place: compressed, behind a URI, in a bucket; the same rows from each of them."""

from __future__ import annotations

import gzip
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs
from read_inputs import read_all

from cotbert_core.errors import UserError
from pipelines.reading import line_reader, locations
from pipelines.reading.locations import suffixes
from pipelines.reading.sources import are_triples, plan, stamps

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
@pytest.mark.parametrize("most", [0, 1, 3, 100])
@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_lines_out_of_blocks_cut_anywhere(data, most, size):
    blocks = [data[start : start + size] for start in range(0, len(data), size)]
    parts = data.removesuffix(b"\n").split(b"\n") if data else []
    expected = [part if len(part) <= most else None for part in parts]
    assert list(line_reader.lines(blocks, most)) == expected


def test_the_endings_of_a_name():
    assert suffixes("/a/b.JSONL.GZ") == (".jsonl", ".gz")
    assert suffixes("s3://b/a.csv.zst?region=x.gz") == (".csv", ".zst")


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    """`s3://bucket` as pyarrow would answer, from a folder."""
    home = tmp_path / "store"
    (home / "bucket" / "deep" / "deeper").mkdir(parents=True)
    asked = []

    class FileSystem:
        @staticmethod
        def from_uri(uri):
            asked.append(uri)
            return fs.SubTreeFileSystem(str(home), fs.LocalFileSystem()), ""

    for name in ("a.txt", "b.txt.gz", "deep/c.txt", "deep/deeper/d%20 é.txt", "deep/x.pdf"):
        content = f"from {name}\n".encode()
        (home / "bucket" / name).write_bytes(gzip.compress(content) if "gz" in name else content)
    table = pa.table({"text": ["from e", "from f", "from g"]})
    pq.write_table(table, home / "bucket" / "deep" / "e.parquet", row_group_size=2)
    monkeypatch.setattr(locations.fs, "FileSystem", FileSystem)
    locations._filesystem.cache_clear()
    yield asked
    locations._filesystem.cache_clear()


def names(item):
    return [f.removeprefix("s3://bucket/") for f in plan([item]).files]


def test_folders_and_globs_of_a_bucket(bucket):
    every = ["a.txt", "b.txt.gz", "deep/c.txt", "deep/deeper/d%20 é.txt", "deep/e.parquet"]
    assert names("s3://bucket") == names("s3://bucket/**/*") == every
    assert names("s3://bucket/deep/") == names("s3://bucket/deep/**/*.*") == every[2:]
    assert names("s3://bucket/*.txt") == ["a.txt"]
    assert names("s3://bucket/*/?.txt") == ["deep/c.txt"]
    assert names("s3://bucket/**/*.txt") == ["a.txt", *every[2:4]]
    assert names("s3://bucket/a.txt") == ["a.txt"]
    assert plan(["s3://bucket/deep"]).ignored == 1
    texts = [f"from {n}" for n in every[:4]] + ["from e", "from f", "from g"]
    assert read_all("s3://bucket")[:2] == (texts, {})
    assert set(bucket) == {"s3://bucket"}, "one file system for all files"
    times = stamps(plan(["s3://bucket/*.txt"]))
    assert times["s3://bucket/a.txt"][0] == len("from a.txt\n")
    assert not are_triples(["s3://bucket"])


def test_options_of_a_uri_go_to_the_file_system_and_stay_with_its_files(bucket):
    item = "s3://bucket/*.txt?region=eu-west-1"
    assert plan([item]).files == ["s3://bucket/a.txt?region=eu-west-1"]
    assert read_all(item).texts == ["from a.txt"]
    assert set(bucket) == {"s3://bucket?region=eu-west-1"}


@pytest.mark.parametrize("item", ["s3://bucket/no.txt", "s3://bucket/*.csv", "s3://bucket/none/"])
def test_what_is_not_in_the_bucket_is_reported(bucket, item):
    with pytest.raises(UserError, match="does not exist or matches no file of a known kind"):
        plan([item])


@pytest.mark.parametrize("call", ["from_uri", "get_file_info"])
def test_a_bucket_that_does_not_answer_is_one_sentence(bucket, monkeypatch, call):
    def refuse(*_):
        raise OSError("AWS Error ACCESS_DENIED: no credentials\nand more\nlines")

    class Refusing:
        get_file_info = staticmethod(refuse)

    answer = refuse if call == "from_uri" else (lambda _: (Refusing(), ""))
    monkeypatch.setattr(locations.fs.FileSystem, "from_uri", staticmethod(answer))
    with pytest.raises(UserError, match=(
        r"^input 's3://bucket/a\.txt' cannot be reached \(AWS Error ACCESS_DENIED: no credentials"
        r"\): check the address and the credentials"
    )):  # fmt: skip
        plan(["s3://bucket/a.txt"])


def test_an_address_of_another_kind_and_a_folder_without_rights_are_reported(tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"'http://a/b.txt' cannot be reached .*http://a"):
        plan(["http://a/b.txt"])

    def refuse(folder):
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(UserError, match=r"cannot be read \(Permission denied\): change its"):
        plan([str(tmp_path)])
