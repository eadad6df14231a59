"""The two passes of `cotbert prepare` as tasks that Ray Data runs on any worker.

What they share lies in a scratch folder. Of shard N of the input the first pass leaves N.ids (raw
int64), N.parquet (the rows' texts), N.near where near duplicates are looked for, and at last
N.json, its counts: with that file it is done. Of part N the second pass leaves the part in the
output folder and then part-N.json, in the same way. Both are read row group by row group, so a
shard may be of any size.
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
from pipelines.reading.lost_rows import FIRST, HARMLESS, count_lost, encoding_advice
from pipelines.reading.read_plan import Plan
from pipelines.reading.readers import PIECE_ROWS, PREFIXES, Piece, read
from pipelines.storage.corpus import corpus_table, text_columns
from pipelines.storage.resumable_output import atomic_file

DROPPED = "dropped."
CHANGED = "changed."
LENGTH = "length."
KEEP_FILE = "keep"
# Texts and tokens of a row group of a part that are held: 8,192 rows of 8 kB.
GROUP_BYTES = 64 << 20


@dataclass(frozen=True)
class Rules:
    """What decides which of the rows that were read stay."""

    on_invalid: str
    cleaner: Cleaner
    exclusion: Exclusion
    near_duplicates: float | None


@dataclass(frozen=True)
class ReadShard:
    """First pass: shard `numbers[id]` to scratch files; its counts come back."""

    plan: Plan
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
        """The one place where texts that were read become texts that are kept, for each column
        those of every row; every row that does not is counted under its reason."""
        cleaned = self.rules.cleaner.clean_rows([piece.texts, *piece.companions])
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
            advice = f"; those that {encoding_advice(shard, first)}" if first else ""
            raise UserError(
                f"{shard.path!r} holds rows that cannot be read "
                f"({', '.join(f'{n} {k}' for k, n in bad.items())}): mend them, or drop them with "
                f"--on-invalid drop{advice}"
            )


def write_counts(counts: Any, path: Path) -> None:
    """Counts beside what they count; the file says that it is done."""
    with atomic_file(path, path.parent) as partial:
        partial.write_text(json.dumps(counts), encoding="utf-8")


def row_id(*texts: str) -> int:
    """Id of a row: 63 bits of the hash of its texts, so equal rows and only they share one
    (among 10 million, a clash has a chance of 1 in 100,000; among a billion, of 1 in 20).

    Joined by a line break, which no text holds once its white space is folded: ("a b", "c") and
    ("a", "b c") differ.
    """
    digest = hashlib.blake2b("\n".join(texts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


@dataclass(frozen=True)
class Rows:
    """Rows `start` to `stop` of a shard's scratch files; the first has the position `position`
    among all rows. start is a multiple of PIECE_ROWS."""

    shard: int
    start: int
    stop: int
    position: int


def _row_groups(file: Path, start: int, stop: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Rows `start` to `stop` of a file of texts, a row group or a piece of one at a time, each with
    the number of its first row."""
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
    """Tables of one schema, at least one, as one file in row groups of PIECE_ROWS, fewer where they
    take more than GROUP_BYTES; not a row group a table, since few rows of a table may stay."""
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
    """Second pass: of the rows of group `numbers[id]` those that stay, tokenized, to one part.

    Among the counts are the sentences of each LENGTH in tokens; beyond max_length they are one.
    """

    tokenizer_json: str
    max_length: int
    bounds: CleanOptions
    scratch: str
    output: str
    groups: tuple[tuple[Rows, ...], ...]
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

    def _rows(self, group: tuple[Rows, ...]) -> Iterator[pa.RecordBatch]:
        """Ids and texts that stay, in pieces."""
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
        """Rows of the part: those whose texts all have a token, and as many as are asked for."""
        ids, *texts = (rows.column(number) for number in range(rows.num_columns))
        # One token more than is kept, to know which texts were cut.
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
        """Which rows have a token in each of their texts and are within the bounds; of the others
        the first text that is not is counted."""
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
