"""The second pass of `cotbert prepare` as a task that Ray Data runs on the workers.

It writes part N to the data folder and then its counts, part-N.json, to the scratch folder; that
file marks the part as done. Files are read one row group at a time, so a shard may have any size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cotbert_core.templates.ragged_ids import Ragged, concatenate
from cotbert_core.templates.tokenizing import PlainTokenizer
from cotbert_core.templates.vocabulary_fit import vocabulary_counts
from pipelines.cleaning.options import CleanOptions
from pipelines.preparing.document_rows import read_places
from pipelines.preparing.duplicates import KEPT, read_flags
from pipelines.preparing.hold_out import HELD_SCHEMA, QUERY
from pipelines.preparing.scratch_files import DROPPED, KEEP_FILE, LENGTH, shard_file
from pipelines.preparing.token_bounds import filled_rows
from pipelines.reading.pieces import PIECE_ROWS
from pipelines.storage.corpus import PLACES, corpus_table
from pipelines.storage.resumable_output import atomic_file, write_json_atomic

# Maximum size in bytes of a part's row group in memory: 8,192 rows of 8 kB.
GROUP_BYTES = 64 << 20


@dataclass(frozen=True)
class RowRange:
    """The rows from `start` to `stop` of a shard's scratch files.

    position: index of the first row over all shards. start is a multiple of PIECE_ROWS.
    """

    shard: int
    start: int
    stop: int
    position: int


def _row_groups(file: Path, start: int, stop: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield (index of the first row, batch) for the rows from `start` to `stop` of a file."""
    source = pq.ParquetFile(file)
    first = 0
    for group in range(source.num_row_groups):
        last = first + source.metadata.row_group(group).num_rows
        begin, end = max(start, first), min(stop, last)
        if begin < end:
            [batch] = source.iter_batches(PIECE_ROWS, row_groups=[group])  # a group is a piece
            yield begin, batch.slice(begin - first, end - begin)
        first = last


def write_row_groups(tables: Iterator[pa.Table], path: Path) -> None:
    """Write tables of one schema (at least one) to one file, in row groups of PIECE_ROWS rows.

    A row group has fewer rows if they take more than GROUP_BYTES. Small tables are concatenated.
    """
    first = next(tables)
    held: list[pa.Table] = []
    rows = size = 0  # of `held`, which has a table for each of many small files
    with pq.ParquetWriter(path, first.schema, compression="zstd") as writer:
        for table in chain([first], tables):
            held.append(table)
            rows, size = rows + len(table), size + table.nbytes
            if rows >= PIECE_ROWS or size >= GROUP_BYTES:
                whole = pa.concat_tables(held)
                full = rows - rows % PIECE_ROWS or rows
                writer.write_table(whole.slice(0, full), PIECE_ROWS)
                rest = whole.slice(full)
                held = [rest] if len(rest) else []
                rows, size = len(rest), rest.nbytes
        if held:
            writer.write_table(pa.concat_tables(held), PIECE_ROWS)


@dataclass(frozen=True)
class WritePart:
    """The second pass: tokenize the kept rows of group `numbers[id]` and write them as a part.

    The counts include the number of sentences of each LENGTH in tokens, up to max_length and more.
    output: folder of the parts. placed: whether the rows have a PLACE. documents: whether the part
    has the columns PLACES. unknown: id of the unknown token. Held-out rows are written to the
    scratch file part-N.held.
    """

    tokenizer_json: str
    max_length: int
    bounds: CleanOptions
    scratch: Path
    output: Path
    groups: tuple[tuple[RowRange, ...], ...]
    numbers: tuple[int, ...]
    placed: bool = False
    documents: bool = False
    unknown: int | None = None

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        number = self.numbers[int(row["id"])]
        tokenizer = PlainTokenizer(self.tokenizer_json)
        counts: Counter[str] = Counter()
        name = f"part-{number:06}"
        held: list[pa.Table] = []
        tables = (
            self._tokenized(tokenizer, rows, counts)
            for rows in self._rows(self.groups[number], held)
        )
        with atomic_file(self.output / f"{name}.parquet", self.scratch) as partial:
            write_row_groups(tables, partial)
        if held:
            counts[f"{DROPPED}held_out"] += sum(map(len, held))
            with atomic_file(self.scratch / f"{name}.held", self.scratch) as partial:
                pq.write_table(pa.concat_tables(held), partial)
        write_json_atomic(self.scratch / f"{name}.json", counts)
        return {"counts": counts}

    def _rows(self, group: tuple[RowRange, ...], held: list[pa.Table]) -> Iterator[pa.RecordBatch]:
        """Yield batches of kept rows (ids, texts, places); append held-out rows to `held`."""
        for rows in group:
            last = rows.position + rows.stop - rows.start
            flags = read_flags(self.scratch / KEEP_FILE, rows.position, last)
            ids = np.memmap(shard_file(self.scratch, rows.shard, "ids"), np.int64, "r")
            texts = shard_file(self.scratch, rows.shard, "parquet")
            for first, batch in _row_groups(texts, rows.start, rows.stop):
                begin, end = first, first + len(batch)
                whole = pa.RecordBatch.from_arrays(
                    [pa.array(ids[begin:end]), *batch.columns], ["id", *batch.schema.names]
                )
                if self.placed:
                    whole = _with_places(whole, read_places(self.scratch, rows.shard, begin, end))
                here = flags[begin - rows.start : end - rows.start]
                if (here > KEPT).any():
                    held.append(_held_rows(whole, here))
                yield whole.filter(pa.array(here == KEPT))

    def _tokenized(
        self, tokenizer: PlainTokenizer, rows: pa.RecordBatch, counts: Counter[str]
    ) -> pa.Table:
        """Return the rows of the part, whose texts all have a token and are within the bounds."""
        ids, *texts = (rows.column(number) for number in range(rows.num_columns))
        texts, places = (texts[:-2], texts[-2:]) if self.placed else (texts, [])
        # One token more than the part will have, to know which texts are truncated.
        bounds = (self.bounds.min_tokens or 0, self.bounds.max_tokens or 0)
        longest = max(self.max_length, *bounds) + 1
        first, *others = (column.to_pylist() for column in texts)
        tokens = [tokenizer(column, longest) for column in (first, *others)]
        whole = _without_cut(tokenizer, first, tokens[0], longest - 1)
        counts.update(vocabulary_counts(*whole, self.unknown))
        filled = filled_rows(tokens, self.bounds, counts)
        if len(filled) < len(ids):
            chosen = pa.array(filled)
            ids, *places = (column.take(chosen) for column in (ids, *places))
            texts = [column.take(chosen) for column in texts]
            tokens = [lists.take(filled) for lists in tokens]
        self._count_lengths(tokens, counts)
        places = places if self.documents else []
        table = corpus_table(ids, texts, [lists.cut(self.max_length) for lists in tokens], places)
        counts["rows"] += len(table)
        counts["tokens"] += pc.sum(pc.list_value_length(table["input_ids"])).as_py() or 0
        return table

    def _count_lengths(self, tokens: Sequence[Ragged], counts: Counter[str]) -> None:
        lengths = np.minimum(tokens[0].lengths, self.max_length + 1)
        of_length = enumerate(np.bincount(lengths).tolist())
        counts.update({f"{LENGTH}{length}": number for length, number in of_length if number})
        cut = [lists.lengths > self.max_length for lists in tokens]
        counts["truncated"] += int(np.any(cut, axis=0).sum())


def _without_cut(
    tokenizer: PlainTokenizer, texts: list[str], ids: Ragged, most: int
) -> tuple[list[str], Ragged]:
    """Return texts with all their tokens: one of more than `most` tokens as far as its first
    `most` characters, since how many characters its tokens stand for is unknown."""
    cut = np.flatnonzero(ids.lengths > most).tolist()
    if not cut:
        return texts, ids
    begun = [texts[row][:most] for row in cut]
    left = np.flatnonzero(ids.lengths <= most)
    known = [texts[row] for row in left.tolist()]
    return [*known, *begun], concatenate([ids.take(left), tokenizer(begun, None)])


def _with_places(rows: pa.RecordBatch, places: np.ndarray) -> pa.RecordBatch:
    """Return the rows with the columns PLACES after the others."""
    columns = [pa.array(np.ascontiguousarray(places[name])) for name in PLACES]
    names = [*rows.schema.names, *PLACES]
    return pa.RecordBatch.from_arrays([*rows.columns, *columns], names)


def _held_rows(rows: pa.RecordBatch, flags: np.ndarray) -> pa.Table:
    """Return the held-out rows as HELD_SCHEMA."""
    held = rows.filter(pa.array(flags > KEPT))
    is_query = pa.array(flags[flags > KEPT] == QUERY)
    columns = [*(held[name] for name in (*PLACES, "id")), is_query, held["text"]]
    return pa.Table.from_arrays(columns, schema=HELD_SCHEMA)
