"""The scratch files of `cotbert prepare`: ids, texts and places of each shard's rows, and counts.

ids: the raw int64 ids of the shard's rows. parquet: their texts, in row groups of PIECE_ROWS, fewer
for long texts. near: their MinHash signatures. places: their PLACE, with documents or held-out
rows. sizes: int64, the shard's documents that may span shards: their sorted ids, then the number of
sentences of each. offsets: int64, the number of sentences that each document of `sizes` has in
earlier shards. json: the counts, written last, which mark the shard as done.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.preparing import duplicates
from pipelines.preparing.near_duplicates import band_rows, signatures
from pipelines.reading.pieces import PIECE_CHARACTERS, PIECE_ROWS
from pipelines.storage.resumable_output import atomic_file

KEEP_FILE = "keep"
# Prefixes of the keys of counts.
DROPPED, CHANGED, LENGTH = "dropped.", "changed.", "length."
# The place of a row. sentence: the id of its first text. document: the document's id, -1 without
# documents. position: number of the document's sentences before it in the same shard. words: number
# of words, at most 255.
PLACE = np.dtype([
    ("sentence", np.int64), ("document", np.int64), ("position", np.int32), ("words", np.uint8)
])  # fmt: skip
Kind = Literal["ids", "parquet", "near", "places", "sizes", "offsets", "json"]


def shard_file(scratch: Path, shard: int, kind: Kind) -> Path:
    """Return a file of a shard."""
    return scratch / f"{shard:06}.{kind}"


def read_counts(path: Path) -> Counter[str]:
    """Return the counts of a shard or part."""
    counts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return Counter(counts)


def place_chunks(files: Sequence[Path]) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (position of the first row, PLACE of up to CHUNK_ROWS rows) over all files."""
    return duplicates.chunks(files, PLACE)


class ScratchWriter:
    """Write the files of a shard, which are renamed into place if the `with` block succeeds.

    One row group is held in memory. near: Jaccard similarity of near duplicates; None writes no
    signatures. places: whether rows have a PLACE.
    """

    def __init__(
        self,
        scratch: Path,
        shard: int,
        columns: Sequence[str],
        near: float | None = None,
        places: bool = False,
    ) -> None:
        self.rows = self._characters = 0
        self._near, self._has_places = near, places
        self._scratch, self._shard = scratch, shard
        self._schema = pa.schema([pa.field(name, pa.string()) for name in columns])
        self._texts: list[list[str]] = [[] for _ in columns]
        self._stack = ExitStack()

    def __enter__(self) -> ScratchWriter:
        parquet = pq.ParquetWriter(self._new("parquet"), self._schema, compression="none")
        self._parquet = self._stack.enter_context(parquet)
        kinds: dict[Kind, bool] = {
            "ids": True, "near": self._near is not None, "places": self._has_places
        }  # fmt: skip
        self._files = {
            kind: self._stack.enter_context(self._new(kind).open("wb"))
            for kind, is_written in kinds.items()
            if is_written
        }
        return self

    def _new(self, kind: Kind) -> Path:
        """Return a temporary path, which gets the name of the file after the writers are closed."""
        path = shard_file(self._scratch, self._shard, kind)
        return self._stack.enter_context(atomic_file(path, self._scratch))

    def add(
        self,
        ids: Sequence[int],
        texts: Sequence[Sequence[str]],
        places: np.ndarray | None = None,
    ) -> None:
        """Add N rows. ids: N ids. texts: N texts per column. places: (N,) PLACE."""
        self._files["ids"].write(np.array(ids, np.int64).tobytes())
        if places is not None:
            self._files["places"].write(places.tobytes())
        if self._near is not None:
            # All texts of a row are compared: a sentence may have several paired texts.
            rows = ["\n".join(row) for row in zip(*texts, strict=True)]
            self._files["near"].write(signatures(rows, band_rows(self._near)).tobytes())
        self.rows += len(ids)
        for column, more in zip(self._texts, texts, strict=True):
            column += more
            self._characters += sum(map(len, more))
        while len(self._texts[0]) >= PIECE_ROWS:
            self._write_group()
        if self._characters >= PIECE_CHARACTERS:
            self._write_group()

    def _write_group(self) -> None:
        arrays = [pa.array(column[:PIECE_ROWS], pa.string()) for column in self._texts]
        self._parquet.write_table(pa.Table.from_arrays(arrays, schema=self._schema))
        self._texts = [column[PIECE_ROWS:] for column in self._texts]
        self._characters = sum(len(text) for column in self._texts for text in column)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None and self._texts[0]:
            self._write_group()
        self._stack.__exit__(kind, error, trace)
