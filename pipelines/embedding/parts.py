"""Read and check the Parquet parts of an embeddings folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cotbert_core.errors import UserError, first_line
from pipelines.reading.data_folder import PASSAGES_COLUMN
from pipelines.reading.parquet_batches import batches, decoded
from pipelines.storage.corpus import MANIFEST_FILE

# Rows of a block, as `cotbert embed` writes them: 12 MB of 384 float32.
BLOCK_ROWS = 8192
# The element types of vectors by their names.
ELEMENTS = {"float32": pa.float32(), "float16": pa.float16(), "int8": pa.int8()}


def read_footer(part: Path) -> tuple[pq.FileMetaData, pa.Schema]:
    try:
        file = pq.ParquetFile(part)
        return file.metadata, file.schema_arrow
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(part, error) from None


def read_batches(part: Path, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part, one row group after the other.

    If all groups are requested at once, pyarrow 25 keeps them in memory: 300,000 x 384 float32 in
    one part, in groups of 8,192 rows, then take 464 MB.
    """
    try:
        groups = pq.ParquetFile(part).num_row_groups
        for batch in batches(str(part), range(groups), columns, BLOCK_ROWS):
            yield from decoded(batch)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(part, error) from None


def _unreadable(part: Path, error: Exception) -> UserError:
    return UserError(
        f"part {str(part)!r} cannot be read ({first_line(error)}): copy it again or embed again"
    )


def check_columns(
    part: Path, schema: pa.Schema, manifest: Mapping[str, Any], first: pa.Schema
) -> None:
    """Raise UserError unless a part has the columns of the manifest and the first part's schema."""
    size, vector = manifest["dimension"], _type_of(schema, "embedding")
    fits = schema.equals(first) and vector in [pa.list_(kind, size) for kind in ELEMENTS.values()]
    ids = _type_of(schema, "id")
    fits &= pa.types.is_integer(ids) or pa.types.is_string(ids)
    if manifest.get("passage_words") is not None:
        fits &= _type_of(schema, PASSAGES_COLUMN) == pa.list_(vector)
    if not fits:
        raise UserError(
            f"part {str(part)!r} does not fit {MANIFEST_FILE} or the first part: it must have ids "
            f"of whole numbers or text, vectors of {size} {', '.join(ELEMENTS)}, and the same "
            "columns as the others; embed again"
        )


def _type_of(schema: pa.Schema, column: str) -> pa.DataType:
    return schema.field(column).type if column in schema.names else pa.null()


def read_values(part: Path, column: str, wanted: Sequence[int]) -> Iterator[tuple[int, Any]]:
    """Yield (row of the part, value) for some rows of a part. wanted: rows in ascending order."""
    try:
        file = pq.ParquetFile(part)
        start = 0
        for group in range(file.num_row_groups):
            stop = start + file.metadata.row_group(group).num_rows
            here = [row for row in wanted if start <= row < stop]
            for batch in batches(str(part), [group], [column], BLOCK_ROWS) if here else ():
                last = start + len(batch)
                found = [row for row in here if start <= row < last]
                yield from ((row, batch.column(0)[row - start].as_py()) for row in found)
                start = last
            start = stop
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(part, error) from None
