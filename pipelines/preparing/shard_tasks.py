"""The two passes of `cotbert prepare` as tasks that Ray Data runs on the workers.

They exchange files in a scratch folder. For shard N of the input the first pass writes N.ids (raw
int64), N.parquet (the rows' texts), N.near if near duplicates are searched, and last N.json, the
counts: the shard is done when that file exists. For part N the second pass writes the part to the
output folder and then part-N.json in the same way. Files are read one row group at a time, so a
shard may have any size.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cotbert_core.errors import UserError
from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.templates.tokenizing import PlainTokenizer
from pipelines.cleaning.cleaner import Cleaner
from pipelines.cleaning.filters import within_length
from pipelines.cleaning.options import CleanOptions
from pipelines.preparing.duplicates import kept
from pipelines.preparing.exclusion import Exclusion, without_excluded
from pipelines.preparing.scratch_files import ScratchWriter, ids_file, texts_file
from pipelines.reading.bad_rows import PREFIXES
from pipelines.reading.lost_rows import FIRST, HARMLESS, count_lost, encoding_advice
from pipelines.reading.pieces import PIECE_ROWS, Piece
from pipelines.reading.read_plan import ReadPlan
from pipelines.reading.readers import read
from pipelines.storage.corpus import corpus_table, text_columns
from pipelines.storage.resumable_output import atomic_file

DROPPED = "dropped."
CHANGED = "changed."
LENGTH = "length."
KEEP_FILE = "keep"
# Bytes of texts and tokens of a part's row group that are held in memory: 8,192 rows of 8 kB.
GROUP_BYTES = 64 << 20


@dataclass(frozen=True)
class Rules:
    """The rules that decide which rows of a shard stay."""

    on_invalid: str
    cleaner: Cleaner
    exclusion: Exclusion
    near_duplicates: float | None


@dataclass(frozen=True)
class ReadShard:
    """The first pass: writes shard `numbers[id]` to scratch files and returns its counts."""

    plan: ReadPlan
    numbers: tuple[int, ...]
    scratch: str
    rules: Rules

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        number = self.numbers[int(row["id"])]
        counts: Counter[str] = Counter()
        unusable: Counter[str] = Counter()
        names = text_columns(self.plan.columns)
        scratch = Path(self.scratch)
        with ScratchWriter(scratch, number, names, self.rules.near_duplicates) as writer:
            for piece in read(self.plan.shards[number], self.plan):
                unusable += piece.dropped
                count_lost(((row.reason, row.row) for row in piece.bad), counts)
                texts = self._kept_texts(piece, counts)
                writer.add([row_id(*row) for row in zip(*texts, strict=True)], texts)
            self._refuse_invalid(number, unusable, counts)
        counts.update({f"{DROPPED}{reason}": n for reason, n in unusable.items()})
        counts["kept"] = writer.rows
        write_counts(counts, scratch / f"{number:06}.json")
        return {"number": number, "counts": counts}

    def _kept_texts(self, piece: Piece, counts: Counter[str]) -> list[list[str]]:
        """Return the texts of the rows that stay, by column, after cleaning and exclusion.

        This is the only place where rows that were read are dropped; each is counted by its reason.
        """
        cleaned = self.rules.cleaner.clean_rows([piece.texts, *piece.paired_texts])
        counts["read"] += piece.read
        counts["added"] += cleaned.added
        counts.update({f"{DROPPED}{reason}": n for reason, n in cleaned.dropped.items()})
        counts.update({f"{CHANGED}{step}": n for step, n in cleaned.changed.items()})
        return without_excluded(cleaned.columns, self.rules.exclusion, counts)

    def _refuse_invalid(
        self, number: int, unusable: Counter[str], counts: Mapping[str, int]
    ) -> None:
        bad = {reason: n for reason, n in unusable.items() if reason not in HARMLESS}
        if bad and self.rules.on_invalid == "fail":
            shard, first = self.plan.shards[number], counts.get(f"{FIRST}invalid_utf8")
            advice = f"; rows that {encoding_advice(shard, first)}" if first else ""
            raise UserError(
                f"{shard.path!r} holds rows that cannot be read "
                f"({', '.join(f'{n} {k}' for k, n in bad.items())}): correct or drop them, with "
                f"--on-invalid drop{advice}"
            )


def write_counts(counts: Any, path: Path) -> None:
    """Write the counts of a shard or part; the file marks it as done."""
    with atomic_file(path, path.parent) as partial:
        partial.write_text(json.dumps(counts), encoding="utf-8")


def row_id(*texts: str) -> int:
    """Return the id of a row: 63 bits of the hash of its texts.

    Equal rows share an id; that different rows do has a chance of 1 in 100,000 among 10 million
    rows, and of 1 in 20 among a billion.

    The texts are joined by line breaks, which no text holds after its white space is folded, so
    ("a b", "c") and ("a", "b c") differ.
    """
    digest = hashlib.blake2b("\n".join(texts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


@dataclass(frozen=True)
class RowRange:
    """The rows from `start` to `stop` of a shard's scratch files.

    position: position of the first among the rows of all shards. start is a multiple of PIECE_ROWS.
    """

    shard: int
    start: int
    stop: int
    position: int


def _row_groups(file: Path, start: int, stop: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield (number of the first row, batch) for the rows from `start` to `stop` of a file."""
    source = pq.ParquetFile(file)
    first = 0
    for group in range(source.num_row_groups):
        last = first + source.metadata.row_group(group).num_rows
        if first < stop and start < last:
            place = first
            for batch in source.iter_batches(PIECE_ROWS, row_groups=[group]):
                begin, end = max(start, place), min(stop, place + len(batch))
                if begin < end:
                    yield begin, batch.slice(begin - place, end - begin)
                place += len(batch)
        first = last


def write_row_groups(tables: Iterable[pa.Table], path: Path) -> None:
    """Write tables of one schema (at least one) to one file, in row groups of PIECE_ROWS rows.

    A row group has fewer rows if they take more than GROUP_BYTES. Tables are joined first, since
    each may hold only a few rows.
    """
    held: list[pa.Table] = []
    with ExitStack() as stack:
        writer = None
        for table in tables:
            held.append(table)
            rows = sum(map(len, held))
            if rows >= PIECE_ROWS or sum(one.nbytes for one in held) >= GROUP_BYTES:
                writer = writer or stack.enter_context(_part_writer(path, table.schema))
                whole = pa.concat_tables(held)
                full = rows - rows % PIECE_ROWS or rows
                writer.write_table(whole.slice(0, full), PIECE_ROWS)
                held = [whole.slice(full)]
        rest = pa.concat_tables(held)
        if writer is None or len(rest):
            writer = writer or stack.enter_context(_part_writer(path, rest.schema))
            writer.write_table(rest, PIECE_ROWS)


def _part_writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    return pq.ParquetWriter(path, schema, compression="zstd")


@dataclass(frozen=True)
class WritePart:
    """The second pass: tokenizes the rows of group `numbers[id]` that stay and writes them as a
    part.

    The counts hold the number of sentences of each LENGTH in tokens; all lengths above max_length
    are counted together.
    """

    tokenizer_json: str
    max_length: int
    bounds: CleanOptions
    scratch: str
    output: str
    groups: tuple[tuple[RowRange, ...], ...]
    numbers: tuple[int, ...]

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        number = self.numbers[int(row["id"])]
        tokenizer = PlainTokenizer(self.tokenizer_json)
        counts: Counter[str] = Counter()
        name, scratch = f"part-{number:06}", Path(self.scratch)
        tables = (
            self._tokenized(tokenizer, rows, counts) for rows in self._rows(self.groups[number])
        )
        with atomic_file(Path(self.output) / f"{name}.parquet", scratch) as partial:
            write_row_groups(tables, partial)
        write_counts(counts, scratch / f"{name}.json")
        return {"counts": counts}

    def _rows(self, group: tuple[RowRange, ...]) -> Iterator[pa.RecordBatch]:
        """Yield the ids and texts of the rows that stay, in batches."""
        scratch = Path(self.scratch)
        for rows in group:
            keep = kept(scratch / KEEP_FILE, rows.position, rows.position + rows.stop - rows.start)
            ids = np.memmap(ids_file(scratch, rows.shard), np.int64, "r")
            for first, batch in _row_groups(texts_file(scratch, rows.shard), rows.start, rows.stop):
                column = pa.array(ids[first : first + len(batch)])
                whole = pa.RecordBatch.from_arrays(
                    [column, *batch.columns], ["id", *batch.schema.names]
                )
                start = first - rows.start
                yield whole.filter(pa.array(keep[start : start + len(batch)]))

    def _tokenized(
        self, tokenizer: PlainTokenizer, rows: pa.RecordBatch, counts: Counter[str]
    ) -> pa.Table:
        """Return the rows for the part: all texts have a token and are within the bounds."""
        ids, *texts = (rows.column(number) for number in range(rows.num_columns))
        # One token more than the part will hold, to know which texts are cut.
        longest = max(self.max_length, self.bounds.max_tokens or 0) + 1
        tokens = [tokenizer(column.to_pylist(), longest) for column in texts]
        filled = self._filled_rows(tokens, counts)
        if len(filled) < len(ids):
            chosen = pa.array(filled)
            ids, *texts = (column.take(chosen) for column in (ids, *texts))
            tokens = [lists.take(filled) for lists in tokens]
        lengths = np.minimum(tokens[0].lengths, self.max_length + 1)
        of_length = enumerate(np.bincount(lengths).tolist())
        counts.update({f"{LENGTH}{length}": number for length, number in of_length if number})
        cut = [lists.lengths > self.max_length for lists in tokens]
        counts["truncated"] += int(np.any(cut, axis=0).sum())
        table = corpus_table(ids, texts, [lists.cut(self.max_length) for lists in tokens])
        counts["rows"] += len(table)
        counts["tokens"] += pc.sum(pc.list_value_length(table["input_ids"])).as_py() or 0
        return table

    def _filled_rows(self, tokens: Sequence[Ragged], counts: Counter[str]) -> np.ndarray:
        """Return the rows each of whose texts has a token and is within the bounds; count the
        others by their first text that is not."""
        filled = np.ones(len(tokens[0]), bool)
        for prefix, lists in zip(PREFIXES, tokens, strict=False):
            empty = filled & (lists.lengths == 0)
            counts[f"{DROPPED}{prefix}no_tokens"] += int(empty.sum())
            filled &= ~empty
        rows: np.ndarray = np.flatnonzero(filled)
        inside, dropped = within_length([lists.lengths[rows] for lists in tokens], self.bounds)
        counts.update({f"{DROPPED}{reason}": n for reason, n in dropped.items()})
        rows = rows[inside]
        return rows
