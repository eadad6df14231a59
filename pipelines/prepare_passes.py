"""The two passes of `cotbert prepare` as tasks that Ray Data runs on any worker.

What they share lies in a scratch folder inside the output: a file of cleaned rows for each shard
of the input, and beside it which of those rows stay.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cotbert_core.errors import UserError
from cotbert_core.ragged import Ragged
from cotbert_core.tokenizing import PlainTokenizer
from pipelines.corpus import corpus_table, text_columns
from pipelines.readers import PIECE_ROWS, PREFIXES, read
from pipelines.sources import Plan

# What is part of any text file, and sentences of SICK without partners; the other reasons mean that
# something is wrong.
HARMLESS = {
    *(f"{prefix}{reason}" for prefix in PREFIXES for reason in ("empty", "null")),
    "no_entailment",
    "no_contradiction",
}


@dataclass(frozen=True)
class ReadShard:
    """First pass: a shard to a scratch file; its ids and counts come back."""

    plan: Plan
    scratch: str
    on_invalid: str

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        number = int(row["id"])
        counts: Counter[str] = Counter()
        texts: list[list[str]] = [[] for _ in self.plan.texts]
        for piece in read(self.plan.shards[number], self.plan):
            counts["read"] += piece.read
            counts.update({f"dropped.{reason}": n for reason, n in piece.dropped.items()})
            for column, more in zip(texts, (piece.texts, *piece.companions), strict=True):
                column += more
        self._refuse_invalid(number, counts)
        ids = np.fromiter(map(row_id, *texts), np.int64, len(texts[0]))
        names = text_columns(self.plan.columns)
        columns = {n: pa.array(t, pa.string()) for n, t in zip(names, texts, strict=True)}
        table = pa.table({"id": ids, **columns})
        pq.write_table(table, f"{self.scratch}/{number:06}.parquet", compression="none")
        return {"number": number, "ids": ids, "counts": counts}

    def _refuse_invalid(self, number: int, counts: Counter[str]) -> None:
        dropped = {k.removeprefix("dropped."): n for k, n in counts.items() if k != "read"}
        bad = {reason: n for reason, n in dropped.items() if reason not in HARMLESS}
        if bad and self.on_invalid == "fail":
            raise UserError(
                f"{self.plan.shards[number].path!r} holds rows that cannot be read "
                f"({', '.join(f'{n} {k}' for k, n in bad.items())}): mend them, or drop them with "
                "--on-invalid drop"
            )


def row_id(*texts: str) -> int:
    """Id of a row: 63 bits of the hash of its texts, so equal rows and only they share one
    (among 10 million, a clash has a chance of 1 in 100,000).

    Joined by a line break, which no text holds once its white space is folded: ("a b", "c") and
    ("a", "b c") differ.
    """
    digest = hashlib.blake2b("\n".join(texts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


@dataclass(frozen=True)
class WritePart:
    """Second pass: the rows of some scratch files that stay, tokenized, to one part."""

    tokenizer_json: str
    max_length: int
    scratch: str
    groups: tuple[tuple[int, ...], ...]

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        number = int(row["id"])
        tokenizer = PlainTokenizer(self.tokenizer_json)
        counts: Counter[str] = Counter()
        part = Path(self.scratch).parent / f"part-{number:06}.parquet"
        tables = [
            self._tokenized(tokenizer, rows, counts) for rows in self._rows(self.groups[number])
        ]
        # Written together: pieces of which few rows stay would make tiny row groups.
        table = pa.concat_tables(tables)
        pq.write_table(table, part, compression="zstd", row_group_size=PIECE_ROWS)
        return {"counts": counts}

    def _rows(self, shards: tuple[int, ...]) -> Iterator[pa.RecordBatch]:
        """Ids and texts that stay, in pieces."""
        for shard in shards:
            keep = np.load(f"{self.scratch}/{shard:06}.npy")
            source = pq.ParquetFile(f"{self.scratch}/{shard:06}.parquet")
            start = 0
            for batch in source.iter_batches(PIECE_ROWS):
                yield batch.filter(pa.array(keep[start : start + len(batch)]))
                start += len(batch)

    def _tokenized(
        self, tokenizer: PlainTokenizer, rows: pa.RecordBatch, counts: Counter[str]
    ) -> pa.Table:
        """Rows of the part: those whose texts all have a token."""
        ids, *texts = (rows.column(number) for number in range(rows.num_columns))
        # One token more than is kept, to know which texts were cut.
        tokens = [tokenizer(column.to_pylist(), self.max_length + 1) for column in texts]
        filled = _filled_rows(tokens, counts)
        if len(filled) < len(ids):
            chosen = pa.array(filled)
            ids, *texts = (column.take(chosen) for column in (ids, *texts))
            tokens = [lists.take(filled) for lists in tokens]
        cut = [lists.lengths > self.max_length for lists in tokens]
        counts["truncated"] += int(np.any(cut, axis=0).sum())
        table = corpus_table(ids, texts, [lists.cut(self.max_length) for lists in tokens])
        counts["rows"] += len(table)
        counts["tokens"] += pc.sum(pc.list_value_length(table["input_ids"])).as_py() or 0
        return table


def _filled_rows(tokens: Sequence[Ragged], counts: Counter[str]) -> np.ndarray:
    """Which rows have a token in each of their texts; the first text without one is counted."""
    filled = np.ones(len(tokens[0]), bool)
    for prefix, lists in zip(PREFIXES, tokens, strict=False):
        empty = filled & (lists.lengths == 0)
        counts[f"dropped.{prefix}no_tokens"] += int(empty.sum())
        filled &= ~empty
    return np.flatnonzero(filled)
