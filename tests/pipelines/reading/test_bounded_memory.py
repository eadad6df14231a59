"""Small files that stand for gigabytes: they are read in bounded memory, or refused in plain words.

The limits are a tenth of the real ones, and so are the files. Memory is what Python and Arrow have
allocated; once it is that of a process of its own with the real limits (measured_reading).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cotbert_core.errors import UserError
from pipelines.reading import (
    arrow_readers,
    delimited,
    line_reader,
    parquet_batches,
    pieces,
    text_files,
)
from pipelines.reading.parquet_batches import batches, decoded
from pipelines.reading.parquet_pages import pages
from pipelines.reading.readers import read
from pipelines.reading.sources import plan

MEASURED = Path(__file__).with_name("measured_reading.py")
LONG = "x" * 90_000
# A piece has 1.6 MiB of characters, of which there are some copies.
MOST_MIB = 25


@pytest.fixture
def measured(monkeypatch):
    """Read a file with limits of a tenth: the rows, the dropped ones, and the most MiB held."""
    limits = {
        pieces: ["PIECE_CHARACTERS"],
        line_reader: ["BLOCK_BYTES", "MOST_LINE_BYTES"],
        delimited: ["MOST_CELL", "MOST_ROW"],
        parquet_batches: ["BATCH_BYTES"],
    }
    for module, names in limits.items():
        for name in names:
            monkeypatch.setattr(module, name, getattr(module, name) // 10)

    held = []

    def weighed(*arguments):
        for batch in batches(*arguments):
            held.append(pa.total_allocated_bytes())
            yield batch

    monkeypatch.setattr(arrow_readers, "batches", weighed)

    def run(path):
        found = Counter()
        held[:] = [pa.total_allocated_bytes()]
        tracemalloc.start()
        try:
            made = plan([str(path)])
            for shard in made.shards:
                for piece in read(shard, made):
                    found.update(piece.dropped)
                    found["rows"] += len(piece.texts)
                    found["characters"] += sum(map(len, piece.texts))
            most = tracemalloc.get_traced_memory()[1] + max(held) - held[0]
        finally:
            tracemalloc.stop()
        return {**found, "mib": most >> 20}

    return run


def dictionary(path: Path, rows: int, values=(LONG,)) -> Path:
    indices = pa.array([n % len(values) for n in range(rows)], pa.int32())
    column = pa.DictionaryArray.from_arrays(indices, pa.array(list(values)))
    pq.write_table(pa.table({"text": column}), path, compression="zstd")
    return path


def compressed(path: Path, parts) -> Path:
    codec = "gzip" if path.suffix == ".gz" else "zstd"
    with pa.CompressedOutputStream(str(path), codec) as file:
        for part in parts:
            file.write(part)
    return path


LONG_LINE = [*([b"a" * (1 << 20)] * 50), b'\n{"text": "last"}\n']
# Each cell of 10 kB holds a line break, which ends no row.
ENDLESS_ROW = [b'text,b\n"', *([(b"x" * 10_000 + b'\n","') * 10] * 300)]
# The ending of a small file, the much that is in it, and its rows.
MUCH = {
    "a line of 50 MB in gzip": ("txt.gz", [b"text\n", *LONG_LINE], {"rows": 2, "too_long": 1}),
    "a line of 50 MB": ("txt.zst", [b"text\n", *LONG_LINE], {"rows": 2, "too_long": 1}),
    "a text of 50 MB": ("jsonl.zst", [b'{"text": "', *LONG_LINE], {"rows": 1, "too_long": 1}),
    "a cell of 50 MB": ("csv.zst", [b"text\n", *LONG_LINE], {"rows": 1, "too_long": 1}),
    "long lines": ("txt.zst", [b"%06d %s\n" % (n, b"b" * 90_000) for n in range(600)],
                   {"rows": 600}),
    "a row that never ends": ("csv.zst", ENDLESS_ROW, {"rows": 2833, "unclosed_quote": 168}),
}  # fmt: skip


@pytest.mark.parametrize("kind", MUCH)
def test_much_text_in_a_small_file_is_read_in_little_memory(tmp_path, measured, kind):
    ending, parts, counts = MUCH[kind]
    path = compressed(tmp_path / f"a.{ending}", parts)
    assert path.stat().st_size < 3 << 20
    found = measured(path)
    assert {name: found[name] for name in counts} == counts
    assert found["mib"] < MOST_MIB


def test_a_long_text_in_every_row_of_a_small_file_takes_the_memory_of_a_few(tmp_path, measured):
    """90 MB of text in about 600 bytes."""
    path = dictionary(tmp_path / "a.parquet", 1000)
    assert path.stat().st_size < 1000
    found = measured(path)
    assert (found["rows"], found["characters"]) == (1000, 1000 * len(LONG))
    assert found["mib"] < MOST_MIB


def test_texts_that_repeat_the_one_before_take_the_memory_of_a_few(tmp_path, measured, monkeypatch):
    """DELTA_BYTE_ARRAY: 90 MB of text, in a page that holds it once. A batch of it is decoded to
    6.4 MiB, of which pyarrow makes copies."""
    path = tmp_path / "a.parquet"
    encoding = {"text": "DELTA_BYTE_ARRAY"}
    options = {"compression": "zstd", "use_dictionary": False, "column_encoding": encoding}
    with pq.ParquetWriter(path, pa.schema([("text", pa.string())]), **options) as writer:
        writer.write_table(pa.table({"text": [LONG] * 1000}))
    assert path.stat().st_size < 20_000
    assert (found := measured(path))["rows"] == 1000
    assert found["mib"] < MOST_MIB
    monkeypatch.setattr(parquet_batches, "BATCH_BYTES", 1 << 30)
    assert measured(path)["mib"] > 3 * MOST_MIB, "premise: what is held is seen"


@pytest.mark.real
def test_such_a_file_is_prepared_in_bounded_memory(tmp_path, bert_folder):
    """0.5 GB of text; torch and a text of 900 kB that is tokenized take most of the memory."""
    path = dictionary(tmp_path / "a.parquet", 600, ["x" * 900_000])
    words = [sys.executable, str(MEASURED), str(path), bert_folder]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert (found["read"], found["rows"]) == (600, 1)
    assert found["mib"] < 750


def test_what_must_be_held_at_once_is_refused_when_it_is_too_large(tmp_path, monkeypatch):
    path = compressed(tmp_path / "a.txt.gz", [b"%09d some words\n" % n for n in range(5000)])
    monkeypatch.setattr(text_files, "MOST_CHARACTERS", 20_000)
    with pytest.raises(UserError, match=r"more than 20,000 characters.* give a part of it"):
        text_files.read_texts(str(path))


def test_a_page_that_is_too_large_to_be_held_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["word " * 1000] * 400}), path, use_dictionary=False)
    made = plan([str(path)])
    assert sum(len(piece.texts) for piece in read(made.shards[0], made)) == 400
    monkeypatch.setattr(parquet_batches, "PAGE_BYTES", 1 << 20)
    with pytest.raises(UserError, match=r"a page of 2,00\d,.* bytes in column 'text'.*smaller"):
        list(read(made.shards[0], made))


def test_a_table_that_must_be_held_whole_is_refused_when_it_is_too_large(tmp_path, monkeypatch):
    path = dictionary(tmp_path / "part-000000.parquet", 100, ["a" * 100_000])
    table = parquet_batches.read_table(path, ["text"])
    assert table.equals(pa.table({"text": ["a" * 100_000] * 100}))
    monkeypatch.setattr(parquet_batches, "TABLE_BYTES", 5_000_000)
    with pytest.raises(UserError, match="more than 5,000,000 bytes of text, which must fit"):
        parquet_batches.read_table(path, ["text"])


LISTS = [[1, 2], [], None, [3]] * 500
DELTA_LENGTHS = "DELTA_LENGTH_BYTE_ARRAY"
SHAPES = {
    "plain": {"use_dictionary": False},
    "dictionary": {},
    "pages of version 2": {"data_page_version": "2.0", "data_page_size": 1000},
    "delta": {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}},
    "delta lengths": {"use_dictionary": False, "column_encoding": {"text": DELTA_LENGTHS}},
    "dictionary that is given up": {"dictionary_pagesize_limit": 5000, "data_page_size": 2000},
    "gzip": {"compression": "gzip"},
    "zstd, statistics in pages": {"compression": "zstd", "write_page_index": True},
}


@pytest.mark.parametrize("options", SHAPES.values(), ids=list(SHAPES))
@pytest.mark.parametrize("most", [64 << 20, 10_000], ids=["roomy", "tight"])
def test_batches_hold_the_rows_that_pyarrow_reads(tmp_path, monkeypatch, options, most):
    """Against pq.read_table; the tight bound makes dictionaries and batches of a few rows."""
    texts = [None if n % 17 == 0 else f"{n % 700} " * (n % 40) for n in range(2000)]
    table = pa.table({"text": texts, "id": list(range(2000)), "more": LISTS})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, row_group_size=1500, **options)
    monkeypatch.setattr(parquet_batches, "BATCH_BYTES", most)
    found = list(batches(str(path), [0, 1], table.column_names, 512))
    assert sum(map(len, found)) == 2000
    parts = [pa.Table.from_batches([part]) for batch in found for part in decoded(batch)]
    assert pa.concat_tables(parts).equals(pq.read_table(path))
    if most < 1 << 20:
        assert max(map(len, parts)) < 512
    else:
        assert {len(batch) for batch in found} == {512, 1500 - 2 * 512, 500}


def test_headers_of_pages_tell_all_values_and_bytes(tmp_path):
    """Against the footer, which pyarrow wrote itself."""
    path = tmp_path / "a.parquet"
    texts = [f"text {n}" for n in range(5000)]
    pq.write_table(pa.table({"text": texts}), path, data_page_size=4000, use_dictionary=False)
    column = pq.read_metadata(path).row_group(0).column(0)
    found = list(pages(pa.OSFile(str(path)), column))
    assert len(found) >= 5
    assert sum(page.values for page in found) == column.num_values == 5000
    sizes = sum(page.size for page in found)
    assert sizes <= column.total_uncompressed_size <= sizes + 200 * len(found)


def test_a_damaged_page_is_one_sentence(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": [f"text {n}" for n in range(5000)]}), path)
    made = plan([str(path)])
    whole = bytearray(path.read_bytes())
    for place in (4, 5, 6, 7):
        broken = whole[:place] + b"\xff" * 40 + whole[place + 40 :]
        path.write_bytes(broken)
        with pytest.raises(UserError, match="cannot be read to its end"):
            list(read(made.shards[0], made))
