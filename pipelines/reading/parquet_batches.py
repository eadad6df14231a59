"""Read Parquet in batches of bounded size in memory, by the sizes that the file's footer gives.

A dictionary stores a long text once for many rows. Columns of texts with a dictionary therefore
stay dictionaries, so each text is in memory once, not once per row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cotbert_core.errors import UserError
from pipelines.reading import locations

# Approximate bytes of a batch: 8,192 rows of 8 kB.
BATCH_BYTES = 64 << 20
# Maximum bytes of `read_table`, the limit of a pyarrow array of texts, and rows of its batches.
TABLE_BYTES, TABLE_ROWS = (2 << 30) - 1, 8192


def batches(
    name: str, groups: Sequence[int], columns: Sequence[str], rows: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the row groups, at most `rows` at a time, fewer if they are large.

    Raises pyarrow's errors for a damaged file.
    """
    raw = locations.open_file(name)
    metadata = pq.ParquetFile(raw).metadata
    for group in groups:
        chunks = _chunks(metadata, group, columns)
        size = sum(chunk.total_uncompressed_size for chunk in chunks)
        most = BATCH_BYTES * metadata.row_group(group).num_rows // max(1, size)
        file = pq.ParquetFile(
            raw,
            metadata=metadata,
            read_dictionary=[chunk.path_in_schema for chunk in chunks if _has_dictionary(chunk)],
            pre_buffer=locations.is_uri(name),  # few requests
        )
        yield from file.iter_batches(
            min(rows, max(1, most)), row_groups=[group], columns=list(columns)
        )


def _chunks(metadata: Any, group: int, columns: Sequence[str]) -> list[Any]:
    """Return the metadata of the columns' chunks in a row group; a list has one for its values."""
    found = metadata.row_group(group)
    chunks = (found.column(number) for number in range(found.num_columns))
    return [chunk for chunk in chunks if chunk.path_in_schema.split(".")[0] in columns]


def _has_dictionary(chunk: Any) -> bool:
    """Return whether a column of texts can be read as a dictionary."""
    is_text = chunk.physical_type == "BYTE_ARRAY" and "." not in chunk.path_in_schema
    # pyarrow 25 cannot read DELTA_BYTE_ARRAY into a dictionary.
    return is_text and chunk.has_dictionary_page and "DELTA_BYTE_ARRAY" not in chunk.encodings


def split(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield slices of a batch of a mapped file, each at most BATCH_BYTES or a single row."""
    if len(batch) < 2 or batch.nbytes <= BATCH_BYTES:
        yield batch
    else:
        half = len(batch) // 2
        yield from split(batch.slice(0, half))
        yield from split(batch.slice(half))


def decoded(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a batch with dictionaries of texts decoded, about BATCH_BYTES at a time."""
    places = [n for n, kind in enumerate(batch.schema.types) if pa.types.is_dictionary(kind)]
    sizes = np.zeros(len(batch), np.int64)
    for place in places:
        column = batch.column(place)
        lengths = pc.binary_length(column.dictionary).fill_null(0).to_numpy(zero_copy_only=False)
        indices = column.indices.fill_null(0).to_numpy(zero_copy_only=False)
        sizes += lengths[indices] if len(lengths) else 0
    parts = np.cumsum(sizes) // BATCH_BYTES
    starts = [0, *(np.flatnonzero(np.diff(parts)) + 1).tolist(), len(batch)]
    for start, stop in pairwise(starts):
        part = batch.slice(start, stop - start)
        for place in places:
            text = part.column(place).dictionary_decode()
            field = part.schema.field(place).with_type(text.type)
            part = part.set_column(place, field, text)
        yield part


def read_table(path: Path, columns: Sequence[str]) -> pa.Table:
    """Return columns of a whole file; UserError if they take more than TABLE_BYTES."""
    file = pq.ParquetFile(path)
    tables, size = [], 0
    for batch in batches(str(path), range(file.num_row_groups), columns, TABLE_ROWS):
        for part in decoded(batch):
            tables.append(pa.Table.from_batches([part]))
            size += part.nbytes
            if size > TABLE_BYTES:
                raise UserError(
                    f"{str(path)!r} has more than {TABLE_BYTES:,} bytes of "
                    f"{', '.join(columns)}, which must fit in memory: prepare the corpus again "
                    "with shorter texts"
                )
    return pa.concat_tables(tables or [file.schema_arrow.empty_table().select(list(columns))])
