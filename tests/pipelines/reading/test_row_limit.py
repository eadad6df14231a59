"""--limit and --delimiter: the first rows of an input, and csv files with other signs."""

from __future__ import annotations

import gzip

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from read_inputs import read_all

from cotbert_core.errors import UserError
from pipelines.cli import main
from pipelines.preparing.options import PrepareOptions
from pipelines.reading import text_readers
from pipelines.reading.columns import check_reading
from pipelines.reading.readers import read
from pipelines.reading.sources import plan
from pipelines.storage.corpus import Corpus

ROWS = 23


@pytest.fixture
def folder(tmp_path):
    """Six files with 23 rows in all, bad ones among them; some have shards of unknown length."""
    place = tmp_path / "texts"
    place.mkdir()
    (place / "a.csv").write_bytes(b'text\none\n"two\nlines"\n\xff\nfour\n')
    (place / "b.jsonl").write_bytes(b'{"text": "five"}\n{bad\n{"text": "seven"}\n')
    (place / "c.txt").write_bytes(b"eight\n\nten\neleven\n")
    (place / "d.txt").write_bytes(b"")
    (place / "e.txt.gz").write_bytes(gzip.compress(b"twelve\nthirteen\n"))
    pq.write_table(
        pa.table({"text": [f"row {n}" for n in range(10)]}), place / "f.parquet", row_group_size=4
    )
    return place


def rows_of(made):
    """Each row's number and its text, or why it has none, in the order of reading."""
    rows = []
    for shard in made.shards:
        for piece in read(shard, made):
            rows += zip(piece.numbers, piece.texts, strict=True)
            rows += ((bad.row, bad.reason) for bad in piece.bad)
    return sorted(rows)


def test_a_limit_reads_the_first_rows_and_no_others(folder):
    everything = rows_of(plan([str(folder)], shard_bytes=8))
    assert len(everything) == ROWS
    for limit in range(1, ROWS + 3):
        made = plan([str(folder)], shard_bytes=8, limit=limit)
        assert rows_of(made) == everything[:limit], limit
        assert {shard.path for shard in made.shards} <= set(made.files)
        known = [shard.rows for shard in made.shards if shard.rows is not None]
        assert sum(known) <= limit
    assert len(plan([str(folder)], limit=4).files) == 1


def test_of_a_large_file_no_more_than_the_limit_is_read(tmp_path, monkeypatch):
    (tmp_path / "a.csv").write_text("text\n" + "a row\n" * 50_000)
    (tmp_path / "b.txt").write_text("one\n")
    taken = []

    def counted(shard, made):
        for row in text_readers.read_delimited(shard, made):
            taken.append(row)
            yield row

    monkeypatch.setitem(read.__globals__["_READERS"], "csv", counted)
    made = plan([str(tmp_path)], limit=10)
    assert len(rows_of(made)) == 10
    assert len(taken) == 11 + 10, "counted to one more than the limit, then read"


@pytest.mark.parametrize(
    ("given", "sign"), [(";", ";"), ("|", "|"), ("tab", "\t"), (r"\t", "\t"), ("\t", "\t")]
)
def test_a_named_delimiter_splits_the_cells(tmp_path, given, sign):
    (tmp_path / "a.csv").write_text(f"n{sign}text\n1{sign}Two dogs, and a man\n")
    known = PrepareOptions(("a.csv",), "encoder", delimiter=given).delimiter
    assert read_all(tmp_path, delimiter=known).texts == ["Two dogs, and a man"]


@pytest.mark.parametrize("given", ["", ";;", '"', "\n", "é"])
def test_what_is_no_delimiter_and_a_limit_below_one_are_refused(given):
    with pytest.raises(UserError, match=r"give one character, such as ';' or '|', or the word tab"):
        PrepareOptions(("a.csv",), "encoder", delimiter=given)
    with pytest.raises(UserError, match="limit is 0: give at least 1"):
        PrepareOptions(("a.csv",), "encoder", limit=0)


@pytest.mark.usefixtures("without_ray")
def test_prepare_and_embed_take_both(tmp_path, bert_folder):
    lines = ["n;text", *(f"{n};dog number {n} runs" for n in range(9))]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    how = ["--input", "a.csv", "--delimiter", ";", "--limit", "5", "--output"]
    assert main(["prepare", *how, "corpus", "--encoder", bert_folder]) == 0
    corpus = Corpus.open(tmp_path / "corpus")
    assert (len(corpus), corpus.manifest["rows_read"]) == (5, 5)
    assert (corpus.manifest["source"]["limit"], corpus.manifest["source"]["delimiter"]) == (5, ";")
    assert main(["embed", bert_folder, *how, "vectors"]) == 0
    assert pq.read_table(tmp_path / "vectors" / "data")["id"].to_pylist() == list(range(5))
    assert main(["search", "vectors", "dog number 3 runs", "--text", "a.csv"]) == 0


@pytest.mark.parametrize(
    ("names", "given", "refused"),
    [
        (["a.txt", "b.jsonl"], {"delimiter": ";"}, "has no file of csv or tsv: leave out --delim"),
        (["a.txt", "c.csv"], {"delimiter": ";"}, None),
        (["d.parquet"], {"encoding": "latin-1"}, "csv or jsonl or tsv or txt: leave out --encod"),
        (["b.jsonl", "d.parquet"], {"encoding": "latin-1"}, None),
        (["a.txt"], {"text_column": "b"}, "has no columns and so no 'b': leave out --text-column"),
        (["docstrings:json"], {"text_column": "b"}, "has no columns and so no 'b'"),
        (["a.txt", "b.jsonl"], {"text_column": "b"}, None),
    ],
)
def test_an_option_that_concerns_no_file_is_refused(tmp_path, names, given, refused):
    (tmp_path / "a.txt").write_text("one\n")
    (tmp_path / "b.jsonl").write_text('{"text": "one", "b": "two"}\n')
    (tmp_path / "c.csv").write_text("text;b\none;two\n")
    pq.write_table(pa.table({"text": ["one"]}), tmp_path / "d.parquet")
    made = plan([n if ":" in n else str(tmp_path / n) for n in names], **given)
    if refused is None:
        check_reading(made)
        return
    with pytest.raises(UserError, match=refused):
        check_reading(made)


@pytest.mark.parametrize(("line", "word"), [("sep=;", ";"), ("SEP=\t", "tab"), ("sep=,", ",")])
def test_the_line_of_a_spreadsheet_is_no_header(tmp_path, line, word):
    (tmp_path / "a.csv").write_text(f"{line}\ntext;b\none;two\n")
    message = f"which only spreadsheets read: delete it, and give --delimiter '{word}' or, to a"
    for delimiter in (None, ";"):
        with pytest.raises(UserError, match=message):
            plan([str(tmp_path / "a.csv")], delimiter=delimiter)
