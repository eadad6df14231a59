"""The two passes of `cotbert prepare` as tasks that Ray Data runs on any worker.

What they share lies in a scratch folder inside the output: a file of cleaned rows for each shard
of the input, and beside it which of those rows stay.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
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
from pipelines.corpus import corpus_table
from pipelines.readers import PIECE_ROWS, read
from pipelines.sources import Plan


@dataclass(frozen=True)
class ReadShard:
    """First pass: a shard to a scratch file; its ids and counts come back."""

    plan: Plan
    scratch: str
    on_invalid: str

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        number = int(row["id"])
        counts: Counter[str] = Counter()
        texts: list[str] = []
        for piece in read(self.plan.shards[number], self.plan):
            counts["read"] += piece.read
            counts.update({f"dropped.{reason}": n for reason, n in piece.dropped.items()})
            texts += piece.texts
        self._refuse_invalid(number, counts)
        ids = np.fromiter(map(text_id, texts), np.int64, len(texts))
        table = pa.table({"id": ids, "text": pa.array(texts, pa.string())})
        pq.write_table(table, f"{self.scratch}/{number:06}.parquet", compression="none")
        return {"number": number, "ids": ids, "counts": counts}

    def _refuse_invalid(self, number: int, counts: Counter[str]) -> None:
        # Blank rows are part of any text file; the other reasons mean that something is wrong.
        harmless = {"dropped.empty", "dropped.null", "read"}
        bad = {k.removeprefix("dropped."): n for k, n in counts.items() if k not in harmless}
        if bad and self.on_invalid == "fail":
            raise UserError(
                f"{self.plan.shards[number].path!r} holds rows that cannot be read "
                f"({', '.join(f'{n} {k}' for k, n in bad.items())}): mend them, or drop them with "
                "--on-invalid drop"
            )


def text_id(text: str) -> int:
    """Id of a sentence: 63 bits of its hash, so equal sentences and only they share one
    (among 10 million, a clash has a chance of 1 in 100,000)."""
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
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
            self._tokenized(tokenizer, ids, texts, counts)
            for ids, texts in self._rows(self.groups[number])
        ]
        # Written together: pieces of which few rows stay would make tiny row groups.
        table = pa.concat_tables(tables)
        pq.write_table(table, part, compression="zstd", row_group_size=PIECE_ROWS)
        return {"counts": counts}

    def _rows(self, shards: tuple[int, ...]) -> Iterator[tuple[np.ndarray, list[str]]]:
        """Ids and texts that stay, in pieces."""
        for shard in shards:
            keep = np.load(f"{self.scratch}/{shard:06}.npy")
            source = pq.ParquetFile(f"{self.scratch}/{shard:06}.parquet")
            start = 0
            for batch in source.iter_batches(PIECE_ROWS):
                chosen = batch.filter(pa.array(keep[start : start + len(batch)]))
                start += len(batch)
                yield np.asarray(chosen["id"]), chosen["text"].to_pylist()

    def _tokenized(
        self, tokenizer: PlainTokenizer, ids: np.ndarray, texts: list[str], counts: Counter[str]
    ) -> pa.Table:
        """Rows of the part: those with at least one token."""
        # One token more than is kept, to know which sentences were cut.
        sentences = tokenizer(texts, self.max_length + 1)
        counts["truncated"] += int((sentences.lengths > self.max_length).sum())
        table = _filled_rows(ids, texts, sentences.cut(self.max_length))
        counts["rows"] += len(table)
        counts["dropped.no_tokens"] += len(texts) - len(table)
        counts["tokens"] += pc.sum(pc.list_value_length(table["input_ids"])).as_py() or 0
        return table


def _filled_rows(ids: np.ndarray, texts: list[str], sentences: Ragged) -> pa.Table:
    rows = np.flatnonzero(sentences.lengths > 0)
    if len(rows) == len(texts):
        return corpus_table(ids, texts, sentences)
    return corpus_table(ids[rows], [texts[row] for row in rows], sentences.take(rows))
