"""Reading rows: every format in the same way, and every unusable row dropped under its reason."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.reading.columns import TRIPLES
from pipelines.reading.pieces import PIECE_ROWS
from pipelines.reading.readers import read
from pipelines.reading.sources import FILE_BITS, plan

SENTENCES = [
    "A plain sentence.",
    'Quotes "in the middle", commas, and a \\ backslash',
    "Accents é, 漢字, 🙂 and a zero\u200bwidth blank",
    "'[MASK] </s>'",
    "x",
]
FORMATS = ("txt", "csv", "tsv", "jsonl", "ndjson", "parquet")


def write(path: Path, texts, **columns) -> str:
    """Rows in the format of the path's suffix."""
    kind = path.suffix[1:]
    rows = [dict(zip(columns, more, strict=True)) for more in zip(*columns.values(), strict=True)]
    rows = [{"text": t, **more} for t, more in zip(texts, rows or [{}] * len(texts), strict=True)]
    if kind == "txt":
        path.write_text("".join(f"{t}\n" for t in texts), encoding="utf-8")
    elif kind in ("csv", "tsv"):
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), delimiter="," if kind == "csv" else "\t")
            writer.writeheader()
            writer.writerows(rows)
    elif kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    return str(path)


def read_all(*paths, id_column=None, **options):
    """(ids, texts, rows read, dropped by reason) of all files."""
    made = plan([str(p) for p in paths], id_column=id_column, **options)
    pieces = [piece for shard in made.shards for piece in read(shard, made)]
    return (
        [i for p in pieces for i in p.ids],
        [t for p in pieces for t in p.texts],
        sum(p.read for p in pieces),
        dict(sum((p.dropped for p in pieces), Counter())),
    )


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_gives_the_same_sentences(tmp_path, kind):
    ids, texts, count, dropped = read_all(write(tmp_path / f"a.{kind}", SENTENCES))
    assert (texts, count, dropped) == (SENTENCES, len(SENTENCES), {})
    assert ids == list(range(len(SENTENCES)))


BAD = b"caf\xe9"  # Latin-1
TEXT_CASES = {
    "txt": (b"one\n" + BAD + b"\ntwo\n\n \t \nthree\n", {"invalid_utf8": 1, "empty": 2}),
    "csv": (
        b"n,text\n1,one\n2," + BAD + b"\n3,two\n4,\n5,   \n6\n7,three\n",
        {"invalid_utf8": 1, "empty": 2, "null": 1},
    ),
    "tsv": (b"text\tn\none\t1\n" + BAD + b"\t2\ntwo\t3\nthree\t4\n", {"invalid_utf8": 1}),
    "jsonl": (
        b'{"text": "one"}\n{"text": "' + BAD + b'"}\n{"text": "\\ud800"}\n{"text": null}\n'
        b'{"text": ""}\n{"text": " \\n "}\n\n{"text": "two"}\n{"text": 5}\n{"text": ["a"]}\n'
        b'{"text": true}\n{"title": "a"}\n["text"]\n"text"\n17\nnull\n{"text": "half\n'
        b"{'text': 'a'}\n" + b"[" * 100_000 + b'\n{"text": "three", "more": {}}',
        {
            "invalid_utf8": 2,
            "null": 1,
            "empty": 3,
            "not_text": 3,
            "no_text_column": 1,
            "invalid_json": 7,
        },
    ),
}


@pytest.mark.parametrize("kind", TEXT_CASES)
def test_bad_rows_are_dropped_by_reason_and_no_other_row_is_lost(tmp_path, kind):
    content, expected = TEXT_CASES[kind]
    path = tmp_path / f"a.{kind}"
    path.write_bytes(content)
    _, texts, count, dropped = read_all(path)
    assert texts == ["one", "two", "three"]
    assert dropped == expected
    assert count == 3 + sum(expected.values())


def test_bad_rows_of_parquet_are_dropped_by_reason(tmp_path):
    values = pa.array([b"one", BAD, None, b"", b" \t", b"two", b"three"], pa.binary())
    # A file may say that a column is text without its bytes being UTF-8.
    column = pa.StringArray.from_buffers(len(values), *values.buffers()[1:], values.buffers()[0])
    pq.write_table(pa.table({"text": column}), tmp_path / "a.parquet")
    _, texts, count, dropped = read_all(tmp_path / "a.parquet")
    assert texts == ["one", "two", "three"]
    assert (count, dropped) == (7, {"invalid_utf8": 1, "null": 1, "empty": 2})


@pytest.mark.parametrize("kind", ["txt", "csv", "tsv", "jsonl"])
def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path, kind):
    path = Path(write(tmp_path / f"a.{kind}", SENTENCES))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read_all(path)[1] == SENTENCES


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
def test_a_line_break_inside_a_field_becomes_a_blank(tmp_path, kind):
    path = write(tmp_path / f"a.{kind}", ["first\nsecond\r\n  third", "next"])
    assert read_all(path)[:3] == ([0, 1], ["first second third", "next"], 2)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_very_long_sentence_is_kept_whole(tmp_path, kind):
    long = "word " * 20_000 + "x" * 100_000
    assert read_all(write(tmp_path / f"a.{kind}", ["a", long, "b"]))[1] == ["a", long, "b"]


@pytest.mark.parametrize("kind", FORMATS[1:])
def test_ids_come_from_the_id_column(tmp_path, kind):
    path = write(tmp_path / f"a.{kind}", ["a", "b", "c"], number=[7, -3, 2**63 - 1])
    ids, texts, _, dropped = read_all(path, id_column="number")
    assert (ids, texts, dropped) == ([7, -3, 2**63 - 1], ["a", "b", "c"], {})


@pytest.mark.parametrize(
    ("name", "content", "bad"),
    [
        ("a.csv", "number,text\n,c\n9223372036854775808,d\n5,ok\n", 2),
        ("a.jsonl", '{"text": "a"}\n{"text": "c", "number": 1.0}\n'
         '{"text": "d", "number": true}\n{"text": "e", "number": 9223372036854775808}\n'
         '{"text": "f", "number": null}\n{"text": "ok", "number": 5}\n', 5),
    ],
)  # fmt: skip
def test_rows_without_a_usable_id_are_dropped_and_counted(tmp_path, name, content, bad):
    (tmp_path / name).write_text(content)
    ids, texts, _, dropped = read_all(tmp_path / name, id_column="number")
    assert (ids, texts) == ([5], ["ok"])
    assert dropped == {"bad_id": bad}


def test_a_row_without_text_and_id_is_counted_by_its_text(tmp_path):
    (tmp_path / "a.jsonl").write_text('\n{bad\n{"text": null}\n{"text": "a"}\n')
    dropped = read_all(tmp_path / "a.jsonl", id_column="number")[3]
    assert dropped == {"empty": 1, "invalid_json": 1, "null": 1, "bad_id": 1}


def test_parquet_ids_that_do_not_fit_are_dropped_and_counted(tmp_path):
    numbers = pa.array([1, None, 2**63, 4], pa.uint64())
    pq.write_table(pa.table({"text": list("abcd"), "id": numbers}), tmp_path / "a.parquet")
    ids, texts, _, dropped = read_all(tmp_path / "a.parquet", id_column="id")
    assert (ids, texts, dropped) == ([1, 4], ["a", "d"], {"bad_id": 2})


@pytest.mark.parametrize(
    ("name", "content"),
    [("b.csv", ",text\n70,a\n80,b\n"), ("b.jsonl", '{"": 70, "text": "a"}\n{"text": "b"}\n')],
)
def test_a_column_without_a_name_is_no_id(tmp_path, name, content):
    """pandas writes its index as such a column; taken for ids, those of two files would clash."""
    (tmp_path / "a.txt").write_text("first\n")
    (tmp_path / name).write_text(content)
    ids = read_all(tmp_path / "a.txt", tmp_path / name)[0]
    assert ids == [0, 1 << FILE_BITS, (1 << FILE_BITS) + 1]


def test_row_numbers_of_several_files_never_clash(tmp_path):
    paths = [write(tmp_path / f"a.{kind}", SENTENCES) for kind in FORMATS]
    ids = read_all(*paths, shard_bytes=20)[0]
    assert len(ids) == len(set(ids)) == len(FORMATS) * len(SENTENCES)


def test_row_numbers_of_docstrings_never_clash():
    ids = read_all("docstrings:yaml,pyarrow")[0]
    assert len(ids) == len(set(ids)) > 100


@pytest.mark.parametrize("kind", ["txt", "parquet"])
def test_a_large_shard_comes_in_pieces(tmp_path, kind):
    path = write(tmp_path / f"a.{kind}", [f"row {n % 7 or ''}" for n in range(2 * PIECE_ROWS + 5)])
    made = plan([path])
    pieces = [piece for shard in made.shards for piece in read(shard, made)]
    assert [p.read for p in pieces] == [PIECE_ROWS, PIECE_ROWS, 5]
    assert [i for p in pieces for i in p.ids] == list(range(2 * PIECE_ROWS + 5))


def test_white_space_of_every_kind_is_folded(tmp_path):
    (tmp_path / "a.txt").write_text("  a\tb\u00a0c\u3000d  e \x0b f\r\n", encoding="utf-8")
    assert read_all(tmp_path / "a.txt")[1] == ["a b c d e f"]


def read_rows(path, text_column, *paired_columns):
    """(rows of texts, rows read, dropped by reason) of one file."""
    made = plan([str(path)], text_column, paired_columns=paired_columns)
    (piece,) = [piece for shard in made.shards for piece in read(shard, made)]
    rows = list(zip(piece.texts, *piece.paired_texts, strict=True))
    return rows, piece.read, dict(piece.dropped)


def test_the_row_is_dropped_under_the_first_text_that_is_bad(tmp_path):
    lines = [
        b'{"a": "x", "b": "y", "c": "z"}', b'{"a": "x", "b": null, "c": null}',
        b'{"a": "x", "b": "y", "c": null}', b'{"a": "x", "b": 5, "c": "z"}',
        b'{"a": "x", "b": "y", "c": ["z"]}', b'{"a": "x", "b": "\\ud800", "c": ""}',
        b'{"a": "x", "c": "z"}', b'{"a": "x", "b": "y"}', b'{"b": "y", "c": "z"}',
    ]  # fmt: skip
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines))
    rows, count, dropped = read_rows(tmp_path / "a.jsonl", "a", "b", "c")
    assert rows == [("x", "y", "z")]
    assert count == len(lines) == 1 + sum(dropped.values())
    assert dropped == {
        "augmented_null": 1, "negative_null": 1, "augmented_not_text": 1, "negative_not_text": 1,
        "augmented_invalid_utf8": 1, "no_augmented_column": 1, "no_negative_column": 1,
        "no_text_column": 1,
    }  # fmt: skip


def test_short_and_badly_encoded_lines_of_csv_are_distinguished(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"sent0,sent1,hard_neg\na,caf\xe9,c\na,b,\xff\na,b\na\n")
    rows, _, dropped = read_rows(tmp_path / "a.csv", *TRIPLES)
    assert rows == []
    assert dropped == {"augmented_invalid_utf8": 1, "negative_invalid_utf8": 1,
                       "negative_null": 1, "augmented_null": 1}  # fmt: skip


def test_parquet_paired_texts_may_be_large_strings_with_bad_bytes(tmp_path):
    values = pa.array([b"b", b"\xff", None], pa.large_binary())
    column = pa.LargeStringArray.from_buffers(3, *values.buffers()[1:], values.buffers()[0])
    pq.write_table(pa.table({"sent0": list("aaa"), "sent1": column}), tmp_path / "a.parquet")
    rows, _, dropped = read_rows(tmp_path / "a.parquet", "sent0", "sent1")
    assert rows == [("a", "b")]
    assert dropped == {"augmented_invalid_utf8": 1, "augmented_null": 1}
