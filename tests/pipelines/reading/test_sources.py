"""Finding and cutting up input: what is refused, and that shards cover every line once."""

from __future__ import annotations

import csv
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cotbert_core.errors import UserError
from pipelines.reading.columns import TRIPLES
from pipelines.reading.formats import KINDS
from pipelines.reading.readers import read
from pipelines.reading.sources import (
    FILE_BITS,
    all_have_integers,
    are_triples,
    plan,
)


def parquet(path: Path, **columns) -> str:
    pq.write_table(pa.table(columns), path)
    return str(path)


def text_file(path: Path, content: bytes | str) -> str:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def test_a_missing_path_is_refused_with_its_name(tmp_path):
    with pytest.raises(UserError, match=r"'.*none\.txt' does not exist"):
        plan([str(tmp_path / "none.txt")])


def test_an_unknown_suffix_is_refused_with_the_known_ones(tmp_path):
    with pytest.raises(UserError, match=r"ends in '\.pdf': give one of \.txt, \.csv.*\.parquet"):
        plan([text_file(tmp_path / "a.pdf", "x")])


def test_a_glob_without_a_match_is_refused(tmp_path):
    text_file(tmp_path / "a.txt", "x")
    with pytest.raises(UserError, match=r"\*\.csv' does not exist or matches no file"):
        plan([str(tmp_path / "*.csv")])


@pytest.mark.parametrize("names", [(), ("notes.md",)])
def test_a_folder_without_text_is_refused(tmp_path, names):
    for name in names:
        text_file(tmp_path / name, "x")
    with pytest.raises(UserError, match="holds no file of a known kind"):
        plan([str(tmp_path)])


@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet"])
@pytest.mark.parametrize("missing", ["text", "id"])
def test_a_missing_column_is_refused_with_those_there_are(tmp_path, suffix, missing):
    there = "id" if missing == "text" else "text"
    path = tmp_path / f"a.{suffix}"
    if suffix == "parquet":
        parquet(path, title=["a"], **{there: [1] if there == "id" else ["b"]})
    else:
        text_file(path, ("," if suffix == "csv" else "\t").join(["title", there]) + "\n")
    with pytest.raises(UserError, match=f"no column '{missing}': it has title, {there}"):
        plan([str(path)], "text", "id")


def test_a_csv_whose_first_line_never_ends_is_refused(tmp_path):
    csv.field_size_limit(131_072)  # Python's own, which readers raise in the workers
    with pytest.raises(UserError, match=r"first line of .* names no columns"):
        plan([text_file(tmp_path / "a.csv", '"text\n' + "x\n" * 100_000)])


@pytest.mark.parametrize("values", [[b"1"], [1.0], [True]])
def test_an_id_column_of_another_type_is_refused(tmp_path, values):
    with pytest.raises(UserError, match=r"column 'id' is of type .*: ids must be whole numbers or"):
        plan([parquet(tmp_path / "a.parquet", text=["a"], id=values)], id_column="id")


def test_large_strings_and_unsigned_ids_are_accepted(tmp_path):
    columns = {"text": pa.array(["a"], pa.large_string()), "id": pa.array([1], pa.uint8())}
    assert len(plan([parquet(tmp_path / "a.parquet", **columns)], id_column="id").shards) == 1


def test_a_folder_is_walked_sorted_and_unknown_files_are_counted(tmp_path):
    (tmp_path / "deep" / "deeper").mkdir(parents=True)
    for name in ("b.txt", "a.TXT", "deep/c.jsonl", "deep/deeper/d.txt", "x.pdf", "deep/README"):
        text_file(tmp_path / name, "{}\n")
    found = plan([str(tmp_path)])
    names = [str(Path(f).relative_to(tmp_path)) for f in found.files]
    assert names == ["a.TXT", "b.txt", "deep/c.jsonl", "deep/deeper/d.txt"]
    assert found.ignored == 2


def test_a_file_named_twice_is_read_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text_file(tmp_path / "a.txt", "x\n")
    assert plan(["a.txt", "./a.txt", str(tmp_path / "*.txt")]).files == [str(tmp_path / "a.txt")]


def test_files_are_the_same_in_whatever_order_they_are_named(tmp_path):
    (tmp_path / "deep").mkdir()
    names = [text_file(tmp_path / n, "x\n") for n in ("b.txt", "deep/a.txt", "a.txt", "c.pdf")]
    first = plan([*names[:3], str(tmp_path)])
    for inputs in ([*names[2::-1], str(tmp_path)], [str(tmp_path), str(tmp_path / "deep")]):
        assert plan(inputs) == first
    assert first.files == sorted(names[:3])
    assert first.ignored == 1, "a file of unknown kind is counted once"
    assert [s.first_row for s in first.shards] == [n << FILE_BITS for n in range(3)]


def test_a_name_with_brackets_is_a_file_before_it_is_a_glob(tmp_path):
    name = text_file(tmp_path / "a[1].txt", "x\n")
    assert plan([name]).files == [name]


def test_an_unknown_package_of_docstrings_is_refused():
    with pytest.raises(UserError, match="no_such_package"):
        plan(["docstrings:no_such_package"])


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet"])
@pytest.mark.parametrize(
    ("text", "paired_columns", "message"),
    [
        ("t", ["no", "n"], "no column 'no': it has t, a, n; name one with --augmented-column$"),
        ("t", ["a", "no"], "no column 'no': it has t, a, n; name one with --negative-column$"),
        ("no", ["a"], "no column 'no': it has t, a, n; name one with --text-column$"),
        ("sent0", TRIPLES[1:], "no column 'sent0': it has t, a, n; name them with --text-column, "
         "--augmented-column, --negative-column in place of --triples$"),
    ],
)  # fmt: skip
def test_a_missing_column_is_reported_with_its_option(
    tmp_path, kind, text, paired_columns, message
):
    path = tmp_path / f"a.{kind}"
    if kind == "parquet":
        parquet(path, t=["x"], a=["y"], n=["z"])
    else:
        text_file(path, ("," if kind == "csv" else "\t").join("tan") + "\n")
    with pytest.raises(UserError, match=rf"a\.{kind}' has {message}"):
        plan([str(path)], text, paired_columns=paired_columns)


def test_paired_texts_of_another_type_are_refused(tmp_path):
    path = parquet(tmp_path / "a.parquet", t=["a"], a=[1])
    with pytest.raises(UserError, match="column 'a' is of type int64: it must be text"):
        plan([path], "t", paired_columns=["a"])


def test_input_without_columns_has_no_paired_texts(tmp_path):
    text_file(tmp_path / "a.txt", "one\n")
    for item in (str(tmp_path), "docstrings:yaml"):
        with pytest.raises(UserError, match="has no columns and so no 'sent1': give csv, tsv, jso"):
            plan([item], "sent0", paired_columns=["sent1"])


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({"a.csv": TRIPLES}, True),
        ({"a.csv": TRIPLES, "b.tsv": (*TRIPLES, "id")}, True),
        ({"a.csv": (*TRIPLES, "text")}, False),
        ({"a.csv": TRIPLES[:2]}, False),
        ({"a.csv": TRIPLES, "b.csv": ("text",)}, False),
        ({"a.csv": TRIPLES, "b.txt": ("text",)}, False),
    ],
)
def test_triples_are_recognised_by_the_header(tmp_path, names, expected):
    for name, columns in names.items():
        line = ("," if name.endswith("csv") else "\t").join(columns)
        text_file(tmp_path / name, f"{line}\n")
    assert are_triples([str(tmp_path)]) is expected
    # Input from SICK is neither for nor against.
    assert are_triples([str(tmp_path), "sick:SICK"]) is expected
    assert not are_triples([str(tmp_path), "docstrings:yaml"])
    assert not are_triples(["sick:SICK"])


LINES = [b"one", b"", b"a line that is longer than most sizes", b"  ", b"\xc3\xa9t\xc3\xa9", b"z"]
FILES = {
    "plain": b"\n".join(LINES) + b"\n",
    "no line break at the end": b"\n".join(LINES),
    "CRLF": b"\r\n".join(LINES) + b"\r\n",
    "only line breaks": b"\n\n\n",
    "one line": b"alone",
    "byte order mark": b"\xef\xbb\xbf" + b"\n".join(LINES),
}


@pytest.mark.parametrize("size", [1, 2, 3, 5, 16, 40, 1 << 20])
@pytest.mark.parametrize("name", FILES)
def test_shards_cover_every_line_once_with_its_row_number(tmp_path, name, size):
    content = FILES[name]
    path = text_file(tmp_path / "a.txt", content)
    cut = plan([path], shard_bytes=size)
    assert [s.start for s in cut.shards[1:]] == [s.stop for s in cut.shards[:-1]]
    assert (cut.shards[0].start, cut.shards[-1].stop) == (0, len(content))
    pieces = [piece for shard in cut.shards for piece in read(shard, cut)]
    lines = content.decode("utf-8-sig").removesuffix("\n").split("\n")
    assert sum(piece.read for piece in pieces) == len(lines)
    rows = [row for piece in pieces for row in zip(piece.ids, piece.texts, strict=True)]
    assert rows == [(n, " ".join(t.split())) for n, t in enumerate(lines) if t.split()]


@pytest.mark.parametrize("suffix", ["txt", "jsonl"])
def test_an_empty_file_has_no_shards(tmp_path, suffix):
    assert plan([text_file(tmp_path / f"a.{suffix}", "")]).shards == []


def test_row_groups_are_shards_numbered_through(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": list("abcdefg")}), path, row_group_size=3)
    shards = plan([str(path)]).shards
    assert [(s.start, s.stop, s.first_row) for s in shards] == [(0, 1, 0), (1, 2, 3), (2, 3, 6)]


def test_each_file_has_row_numbers_of_its_own(tmp_path):
    names = [text_file(tmp_path / f"{n}.txt", "x\n" * n) for n in (1, 2, 3)]
    assert [s.first_row for s in plan(names).shards] == [n << FILE_BITS for n in range(3)]


def test_docstrings_come_in_shards_of_a_hundred_files():
    shards = plan(["docstrings:numpy,yaml"]).shards
    files = [f for s in shards for f in s.files]
    assert {s.kind for s in shards} == {"docstrings"}
    assert len(files) == len(set(files)) > 100
    assert [len(s.files) for s in shards[:-1]] == [100] * (len(shards) - 1)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"a.parquet": [1]}, True),
        ({"a.parquet": [1], "b.parquet": ["x"]}, False),
        ({"a.parquet": [1], "b.parquet": None}, False),
        ({"a.parquet": [1], "empty.txt": ""}, False),
        ({"empty.txt": ""}, False),
    ],
)
def test_ids_are_taken_from_parquet_alone(tmp_path, files, expected):
    """An empty text file has no shard, so the shards alone do not tell."""
    for name, ids in files.items():
        if name.endswith(".txt"):
            text_file(tmp_path / name, ids)
        else:
            parquet(tmp_path / name, text=["a"], **({} if ids is None else {"id": ids}))
    assert all_have_integers(plan([str(tmp_path)]), "id") is expected


def test_every_kind_has_a_reader():
    from pipelines.reading.readers import _READERS

    assert set(KINDS.values()) | {"docstrings", "sick", "hub"} == set(_READERS)
