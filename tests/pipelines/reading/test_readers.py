"""Reading rows: every format in the same way, ids and row numbers, rows of several texts."""

from __future__ import annotations

import pyarrow as pa
import pytest
from read_inputs import parquet, read_all, write_rows

from cotbert_core.errors import UserError
from pipelines.reading.columns import TRIPLES
from pipelines.reading.pieces import PIECE_ROWS
from pipelines.reading.read_plan import FILE_BITS
from pipelines.reading.readers import read
from pipelines.reading.sources import plan

TEXTS = [
    "A plain sentence.",
    'Quotes "in the middle", commas, and a \\ backslash',
    "Accents é, 漢字, 🙂 and a zero\u200bwidth blank",
    "'[MASK] </s>'",
    "word " * 20_000 + "x" * 100_000,
    "  a\tb\u00a0c\u3000d  e \x0b f",
    "x",
]
FORMATS = ("txt", "csv", "tsv", "jsonl", "ndjson", "parquet")


def folded(row):
    return tuple(" ".join(text.split()) for text in row)


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_gives_the_same_sentences(tmp_path, kind):
    given = TEXTS if kind == "txt" else [*TEXTS, "first\nsecond\r\n  third"]
    found = read_all(write_rows(tmp_path / f"a.{kind}", [(text,) for text in given]))
    assert (found.texts, found.dropped) == (list(folded(given)), {})
    assert found.ids == list(range(len(given)))


@pytest.mark.parametrize("key", ["text\u00e9", r"text\u00e9"])
def test_a_key_beyond_ascii_is_found_twice_however_it_is_written(tmp_path, key):
    lines = [f'{{"text\u00e9": "a", "{key}": "b"}}', '{"text\u00e9": "c"}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    found = read_all(tmp_path / "a.jsonl", text_column="text\u00e9")
    assert (found.texts, found.dropped) == (["c"], {"duplicate_key": 1})


QUOTES = [
    ('"Two dogs," he said.', '"Two dogs," he said.'),
    ('"A man', '"A man'),
    ('and "a dog"', 'and "a dog"'),
    ('"He said ""no"", twice"', 'He said "no", twice'),
    ('"""', '"""'),
    ('""""', '"'),
]


def test_a_quote_between_tabs_ends_no_row_and_begins_none(tmp_path):
    cells = [cell for cell, _ in QUOTES]
    (tmp_path / "a.tsv").write_text("n\ttext\n" + "".join(f"0\t{cell}\n" for cell in cells))
    found = read_all(tmp_path / "a.tsv")
    assert (found.texts, found.dropped) == ([text for _, text in QUOTES], {})


def test_a_carriage_return_between_tabs_ends_a_row_only_where_it_ends_the_header(tmp_path):
    for content, texts in (
        (b"text\tn\r\na\rb\t1\r\nc\t2\r\n", ["a b", "c"]),
        (b"text\tn\ra\t1\rb\t2\r", ["a", "b"]),
    ):
        (tmp_path / "a.tsv").write_bytes(content)
        assert read_all(tmp_path / "a.tsv").texts == texts


def test_a_csv_between_tabs_has_quoted_line_breaks(tmp_path):
    """Excel's "Unicode text", renamed."""
    (tmp_path / "a.csv").write_text('text\tn\n"One ""a""\nand\ttwo"\t1\nb\t2\n', encoding="utf-16")
    found = read_all(tmp_path / "a.csv", delimiter="\t", encoding="utf-16")
    assert (found.texts, found.dropped) == (['One "a" and two', "b"], {})


def test_every_row_of_a_real_tsv_is_read(tmp_path, shared):
    """Its texts hold quotes that are never closed."""
    original = shared / "data" / "senteval" / "MRPC" / "msr_paraphrase_train.txt"
    (tmp_path / "a.tsv").write_bytes(original.read_bytes())
    found = read_all(tmp_path / "a.tsv", text_column="#1 String")
    assert (len(found.texts), found.dropped) == (4076, {})


TRIPLE_ROWS = [
    ("A man  is playing", "A man plays, on a guitar", "Nobody plays"),
    ("Two dogs run", "dogs are\nrunning", "no dog"),
    ("oil", "", "sea"),
    ("oil", "the oil", "  \t"),
    ("", "the oil", "sea"),
]


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_format_gives_the_same_rows_of_several_texts(tmp_path, kind, count):
    path = write_rows(tmp_path / f"a.{kind}", TRIPLE_ROWS, TRIPLES)
    found = read_all(path, text_column="sent0", paired_columns=TRIPLES[1:count])
    assert found.rows == [row for r in TRIPLE_ROWS if all(row := folded(r[:count]))]
    reasons = ("empty", "augmented_empty", "negative_empty")
    assert found.dropped == dict.fromkeys(reasons[:count], 1)


# A file's name, its content, and the reasons under which its rows but those with an x are dropped.
BAD_TRIPLES = {
    "jsonl": (
        b'{"sent0": "x", "sent1": "y", "hard_neg": "z"}\n'
        b'{"sent0": "a", "sent1": null, "hard_neg": null}\n'
        b'{"sent0": "a", "sent1": "y", "hard_neg": null}\n'
        b'{"sent0": "a", "sent1": 5, "hard_neg": "z"}\n'
        b'{"sent0": "a", "sent1": "y", "hard_neg": ["z"]}\n'
        b'{"sent0": "a", "sent1": "\\ud800", "hard_neg": ""}\n'
        b'{"sent0": "a", "hard_neg": "z"}\n{"sent0": "a", "sent1": "y"}\n{"sent1": "y"}\n',
        {"augmented_null", "negative_null", "augmented_not_text", "negative_not_text",
         "augmented_invalid_utf8", "no_augmented_column", "no_negative_column", "no_text_column"},
    ),
    "csv": (
        b"sent0,sent1,hard_neg\na,caf\xe9,c\nx,y,z\na,b,\xff\na,b\na\n",
        {"augmented_invalid_utf8", "negative_invalid_utf8", "negative_null", "augmented_null"},
    ),
    "parquet": (
        parquet(sent0=list("xaa"), hard_neg=list("zbb"),
                sent1=pa.array([b"y", b"\xff", None], pa.large_binary()).view(pa.large_string())),
        {"augmented_invalid_utf8", "augmented_null"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD_TRIPLES)
def test_the_row_is_dropped_under_the_first_text_that_is_bad(tmp_path, kind):
    content, reasons = BAD_TRIPLES[kind]
    (tmp_path / f"a.{kind}").write_bytes(content)
    found = read_all(tmp_path, text_column="sent0", paired_columns=TRIPLES[1:])
    assert found.rows == [("x", "y", "z")]
    assert found.dropped == dict.fromkeys(reasons, 1)


TITLED = [
    ("Late parcel", "It came  on Monday."),
    ("Is it broken?", "The cup (blue) is."),
    ('A "quote."', "b"),
    ("", "no title"),
    ("No body", " "),
    ("", ""),
]
JOINED = [
    "Late parcel. It came on Monday.",
    "Is it broken? The cup (blue) is.",
    'A "quote." b',
    "no title",
    "No body",
]


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
def test_several_columns_are_joined_to_a_text_each_ending_a_sentence(tmp_path, kind):
    rows = [(*row, n, f"other {n}") for n, row in enumerate(TITLED)]
    path = write_rows(tmp_path / f"a.{kind}", rows, ("title", "body", "id", "to"))
    (tmp_path / "b.txt").write_text("A line, without columns\n")
    given = {"text_column": "title, body", "id_column": "id", "paired_columns": ("to",)}
    found = read_all(path, **given)
    assert found.rows == [(text, f"other {n}") for n, text in enumerate(JOINED)]
    assert (found.ids, found.dropped) == ([0, 1, 2, 3, 4], {"empty": 1})
    both = read_all(path, tmp_path / "b.txt", text_column="title,body")
    assert both.texts == [*JOINED, "A line, without columns"]
    swapped = read_all(path, text_column="body,title")
    assert swapped.texts[0] == "It came on Monday. Late parcel"
    split = read_all(path, text_column="title,body", keep_paragraphs=True)
    assert split.texts[:2] == [
        "Late parcel.\nIt came on Monday.",
        "Is it broken?\nThe cup (blue) is.",
    ]


def test_one_of_several_columns_may_be_missing_and_none_may_be_unusable(tmp_path):
    lines = ('{"body": "a"}', '{"title": null, "body": "b"}', '{"title": 5, "body": "c"}', "{}")
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    found = read_all(tmp_path / "a.jsonl", text_column="title,body")
    assert (found.texts, found.dropped) == (["a", "b"], {"not_text": 1, "no_text_column": 1})
    (tmp_path / "a.csv").write_text("title,text\na,b\n")
    with pytest.raises(UserError, match=r"no column 'body': it has title, text; .*--text-column"):
        plan([str(tmp_path / "a.csv")], "title,body")


@pytest.mark.parametrize("kind", FORMATS[1:])
def test_ids_come_from_the_id_column(tmp_path, kind):
    rows = [("a", 7), ("b", -3), ("c", 2**63 - 1)]
    path = write_rows(tmp_path / f"a.{kind}", rows, ("text", "number"))
    found = read_all(path, id_column="number")
    assert (list(zip(found.texts, found.ids, strict=True)), found.dropped) == (rows, {})


@pytest.mark.parametrize(
    ("name", "content", "ids", "dropped"),
    [
        ("a.csv", b"number,text\n,c\n,d\n5,ok\n", [5], {"bad_id": 2}),
        ("a.jsonl", b'{"text": "a"}\n{"text": "c", "number": 1.0}\n{"text": "d", "number": true}\n'
         b'{"text": "f", "number": null}\n{"text": "ok", "number": 5}\n', [5], {"bad_id": 4}),
        ("a.parquet", parquet(text=list("abcd"), number=pa.array([1, None, 2**63, 4], pa.uint64())),
         ["1", str(2**63), "4"], {"bad_id": 1}),
        # A row without text and id is counted by its text.
        ("a.jsonl", b'\n{bad\n{"text": null}\n{"text": "a", "number": null}\n', [],
         {"empty": 1, "invalid_json": 1, "null": 1, "bad_id": 1}),
    ],
)  # fmt: skip
def test_rows_without_a_usable_id_are_dropped_and_counted(tmp_path, name, content, ids, dropped):
    (tmp_path / name).write_bytes(content)
    found = read_all(tmp_path / name, id_column="number")
    assert (found.ids, found.dropped) == (ids, dropped)


NUMBERS = {"007": "text", "1_000": "text", "+5": "text", str(2**63): "text", " 7 ": 7, "-7": -7}


@pytest.mark.parametrize("number", NUMBERS)
def test_a_number_that_int64_would_change_makes_the_ids_text(tmp_path, number):
    (tmp_path / "a.csv").write_text(f"number,text\n5,a\n{number},b\n")
    found = read_all(tmp_path / "a.csv", id_column="number")
    expected = ["5", number] if NUMBERS[number] == "text" else [5, NUMBERS[number]]
    assert (found.ids, found.dropped) == (expected, {})


def test_a_number_beyond_int64_makes_the_ids_of_json_text(tmp_path):
    path = write_rows(tmp_path / "a.jsonl", [(5, "a"), (2**63, "b")], ("number", "text"))
    assert read_all(path, id_column="number").ids == ["5", str(2**63)]


@pytest.mark.parametrize(
    ("name", "content"),
    [("b.csv", ",text\n70,a\n80,b\n"), ("b.jsonl", '{"": 70, "text": "a"}\n{"text": "b"}\n')],
)
def test_a_column_without_a_name_is_no_id(tmp_path, name, content):
    """pandas writes its index as such a column; taken for ids, those of two files would clash."""
    (tmp_path / "a.txt").write_text("first\n")
    (tmp_path / name).write_text(content)
    assert read_all(tmp_path).ids == [0, 1 << FILE_BITS, (1 << FILE_BITS) + 1]


def test_row_numbers_of_several_files_never_clash(tmp_path):
    for kind in FORMATS:
        write_rows(tmp_path / f"a.{kind}", [(text,) for text in TEXTS])
    ids = read_all(tmp_path, shard_bytes=20).ids
    assert len(ids) == len(set(ids)) == len(FORMATS) * len(TEXTS)
    ids = read_all("docstrings:yaml,pyarrow").ids  # in several shards
    assert len(ids) == len(set(ids)) > 100


@pytest.mark.parametrize("kind", ["txt", "parquet"])
def test_a_large_shard_comes_in_pieces(tmp_path, kind):
    rows = [(f"row {n % 7 or ''}",) for n in range(2 * PIECE_ROWS + 5)]
    made = plan([write_rows(tmp_path / f"a.{kind}", rows)])
    pieces = [piece for shard in made.shards for piece in read(shard, made)]
    assert [p.read for p in pieces] == [PIECE_ROWS, PIECE_ROWS, 5]
    assert [i for p in pieces for i in p.ids] == list(range(2 * PIECE_ROWS + 5))
