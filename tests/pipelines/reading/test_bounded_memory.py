"""Small files that stand for gigabytes: they are read in bounded memory, or refused in plain words.

The limits are a tenth of the real ones, and so are the files. Memory is what Python and Arrow have
allocated.
"""

from __future__ import annotations

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
from pipelines.reading.readers import read
from pipelines.reading.sources import plan

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

    def run(path, limit=None):
        found = Counter()
        held[:] = [pa.total_allocated_bytes()]
        tracemalloc.start()
        try:
            made = plan([str(path)], limit=limit)
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
    """A file of texts that are stored once; that they are a dictionary is not in its schema."""
    indices = pa.array([n % len(values) for n in range(rows)], pa.int32())
    column = pa.DictionaryArray.from_arrays(indices, pa.array(list(values)))
    pq.write_table(pa.table({"text": column}), path, compression="zstd", store_schema=False)
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


def test_567_bytes_with_fifteen_gigabytes_of_text_begin_in_little_memory(tmp_path, measured):
    """Arrow's batch has 8,192 rows of 900 kB; Python has a few of them at a time."""
    path = dictionary(tmp_path / "a.parquet", 16_384, ["x" * 900_000])
    assert path.stat().st_size < 1000
    found = measured(path, limit=50)
    assert (found["rows"], found["characters"]) == (50, 50 * 900_000)
    assert found["mib"] < MOST_MIB


def test_what_must_be_held_at_once_is_refused_when_it_is_too_large(tmp_path, monkeypatch):
    path = compressed(tmp_path / "a.txt.gz", [b"%09d some words\n" % n for n in range(5000)])
    monkeypatch.setattr(text_files, "MOST_CHARACTERS", 20_000)
    with pytest.raises(UserError, match=r"more than 20,000 characters.* give a part of it"):
        text_files.read_texts(str(path))


def test_a_table_that_must_be_held_whole_is_refused_when_it_is_too_large(tmp_path, monkeypatch):
    path = dictionary(tmp_path / "part-000000.parquet", 100, ["a" * 100_000])
    table = parquet_batches.read_table(path, ["text"])
    assert table.equals(pa.table({"text": ["a" * 100_000] * 100}))
    monkeypatch.setattr(parquet_batches, "TABLE_BYTES", 5_000_000)
    with pytest.raises(UserError, match="more than 5,000,000 bytes of text, which must fit"):
        parquet_batches.read_table(path, ["text"])


LISTS = [[1, 2], [], None, [3]] * 500
SHAPES = {
    "plain": {"use_dictionary": False},
    "dictionary": {},
    "delta": {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}},
    "dictionary that is given up": {"dictionary_pagesize_limit": 5000, "data_page_size": 2000},
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
