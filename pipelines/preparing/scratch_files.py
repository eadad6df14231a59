"""The scratch files of `cotbert prepare`: ids, texts and places of each shard's rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.preparing.near_duplicates import band_rows, signatures
from pipelines.reading.pieces import PIECE_CHARACTERS, PIECE_ROWS
from pipelines.storage.resumable_output import atomic_file

KEEP_FILE = "keep"
# The place of a row. sentence: the id of its first text. document: the document's id, -1 without
# documents. position: number of the document's sentences before it in the same shard. words: number
# of words, at most 255.
PLACE = np.dtype([
    ("sentence", np.int64), ("document", np.int64), ("position", np.int32), ("words", np.uint8)
])  # fmt: skip


def ids_file(scratch: Path, shard: int) -> Path:
    """Return the file of the raw int64 ids of a shard's rows."""
    return scratch / f"{shard:06}.ids"


def texts_file(scratch: Path, shard: int) -> Path:
    """Return the file of the rows' texts, in row groups of PIECE_ROWS, fewer for long texts."""
    return scratch / f"{shard:06}.parquet"


def near_file(scratch: Path, shard: int) -> Path:
    """Return the file of the rows' MinHash signatures."""
    return scratch / f"{shard:06}.near"


def places_file(scratch: Path, shard: int) -> Path:
    """Return the file of the rows' PLACE, written with documents or held-out rows."""
    return scratch / f"{shard:06}.places"


def sizes_file(scratch: Path, shard: int) -> Path:
    """Return the int64 file of a shard's documents that may span shards: their sorted ids, then
    the number of sentences of each."""
    return scratch / f"{shard:06}.sizes"


def offsets_file(scratch: Path, shard: int) -> Path:
    """Return the int64 file of the number of sentences that each document of the sizes file has
    in earlier shards."""
    return scratch / f"{shard:06}.offsets"


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
        self._parquet = self._stack.enter_context(
            pq.ParquetWriter(self._enter(texts_file), self._schema, compression="none")
        )
        self._ids = self._stack.enter_context(self._enter(ids_file).open("wb"))
        if self._near is not None:
            self._signatures = self._stack.enter_context(self._enter(near_file).open("wb"))
        if self._has_places:
            self._places = self._stack.enter_context(self._enter(places_file).open("wb"))
        return self

    def _enter(self, file: Callable[[Path, int], Path]) -> Path:
        """Return a temporary path, renamed to `file` after the writers are closed."""
        return self._stack.enter_context(
            atomic_file(file(self._scratch, self._shard), self._scratch)
        )

    def add(
        self,
        ids: Sequence[int],
        texts: Sequence[Sequence[str]],
        places: np.ndarray | None = None,
    ) -> None:
        """Add N rows. ids: N ids. texts: N texts per column. places: (N,) PLACE."""
        self._ids.write(np.array(ids, np.int64).tobytes())
        if places is not None:
            self._places.write(places.tobytes())
        if self._near is not None:
            # All texts of a row are compared: a sentence may have several paired texts.
            rows = ["\n".join(row) for row in zip(*texts, strict=True)]
            self._signatures.write(signatures(rows, band_rows(self._near)).tobytes())
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
