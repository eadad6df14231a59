"""The scratch files of `cotbert prepare`: for each shard its rows' ids and their texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.preparing.near_duplicates import band_rows, signatures
from pipelines.reading.readers import PIECE_CHARACTERS, PIECE_ROWS
from pipelines.storage.resumable_output import atomic_file


def ids_file(scratch: Path, shard: int) -> Path:
    """Raw int64 ids of the shard's rows."""
    return scratch / f"{shard:06}.ids"


def texts_file(scratch: Path, shard: int) -> Path:
    """The texts of the same rows, in row groups of PIECE_ROWS, or of fewer where they are long."""
    return scratch / f"{shard:06}.parquet"


def near_file(scratch: Path, shard: int) -> Path:
    """What near duplicates of the same rows are found by, where they are looked for."""
    return scratch / f"{shard:06}.near"


class ScratchWriter:
    """The files of a shard, which have their names when the block ends well; in memory there is one
    row group. near: the similarity from which rows are near duplicates; None: that file is left
    out."""

    def __init__(
        self, scratch: Path, shard: int, columns: Sequence[str], near: float | None = None
    ) -> None:
        self.rows = self._characters = 0
        self._near = near
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
        return self

    def _enter(self, file: Callable[[Path, int], Path]) -> Path:
        """A name to write to; left in the opposite order, so closed before it is renamed."""
        return self._stack.enter_context(
            atomic_file(file(self._scratch, self._shard), self._scratch)
        )

    def add(self, ids: Sequence[int], texts: Sequence[Sequence[str]]) -> None:
        """Rows: ids, and for each column its texts."""
        self._ids.write(np.array(ids, np.int64).tobytes())
        if self._near is not None:
            # All of a row's texts: the same sentence may go with several companions.
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
