"""The scratch files of `cotbert prepare`: ids, texts and places of each shard's rows, and counts.

ids: the raw int64 ids of the shard's rows. parquet: their texts, a piece in row groups of up to
PIECE_ROWS. near: their MinHash signatures. places: their PLACE, with documents or held-out rows.
sizes: int64, the shard's documents that may span shards: their sorted ids, then the number of
sentences of each. offsets: int64, the number of sentences that each document of `sizes` has in
earlier shards. json: the counts, written last, which mark the shard as done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cotbert_core.files import read_json
from pipelines.preparing import duplicates
from pipelines.preparing.near_duplicates import band_rows, signatures
from pipelines.reading.pieces import PIECE_ROWS
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
    return Counter(read_json(path))


def place_chunks(files: Sequence[Path]) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (position of the first row, PLACE of up to CHUNK_ROWS rows) over all files."""
    return duplicates.chunks(files, PLACE)


@contextmanager
def scratch_writer(
    scratch: Path, shard: int, columns: Sequence[str], near: float | None, places: bool
) -> Iterator[ScratchWriter]:
    """Give the writer of a shard's files, which are renamed into place if the block succeeds.

    near: Jaccard similarity of near duplicates; None writes no signatures. places: whether rows
    have a PLACE.
    """
    kinds: dict[Kind, bool] = {"ids": True, "near": near is not None, "places": places}
    schema = pa.schema([pa.field(name, pa.string()) for name in columns])
    with ExitStack() as stack:

        def new(kind: Kind) -> Path:
            return stack.enter_context(atomic_file(shard_file(scratch, shard, kind), scratch))

        parquet = pq.ParquetWriter(new("parquet"), schema, compression="none")
        stack.enter_context(parquet)
        files = {
            kind: stack.enter_context(new(kind).open("wb"))
            for kind, is_written in kinds.items()
            if is_written
        }
        yield ScratchWriter(parquet, files, near)


class ScratchWriter:
    """The open files of a shard."""

    def __init__(
        self, parquet: pq.ParquetWriter, files: Mapping[Kind, BinaryIO], near: float | None
    ) -> None:
        self.rows = 0
        self._parquet, self._files, self._near = parquet, files, near

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
        arrays = [pa.array(column, pa.string()) for column in texts]
        table = pa.Table.from_arrays(arrays, schema=self._parquet.schema)
        self._parquet.write_table(table, PIECE_ROWS)
