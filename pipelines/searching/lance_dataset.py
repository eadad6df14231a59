"""An embeddings folder as a Lance dataset: id, the columns that embed kept, vector."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from cotbert_core.errors import UserError
from pipelines.progress import Progress
from pipelines.searching.embeddings import Block, Embeddings
from pipelines.searching.options import IndexOptions

FOLDER = "vectors.lance"
VECTOR = "vector"


def write(embeddings: Embeddings, folder: Path, options: IndexOptions) -> int:
    """Write `vectors.lance` into the folder; returns how many rows have no direction.

    Vectors keep their length and their type; of int8 they are float32, since Lance knows no scale.
    """
    lance = require()
    if VECTOR in embeddings.kept:
        raise UserError(
            f"the embeddings hold a column {VECTOR!r} beside `embedding`, which Lance needs for "
            "the vectors: embed again without it, or rename it in the input"
        )
    schema = _schema(embeddings)
    left_out = 0
    progress = Progress("index", len(embeddings), "row")

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal left_out
        done = 0
        for block in embeddings.blocks(embeddings.kept):
            left_out += block.left_out
            done += len(block.ids) + block.left_out
            progress.show(done)
            yield from _table(block, schema).to_batches()

    lance.write_dataset(pa.RecordBatchReader.from_batches(schema, batches()), str(folder / FOLDER))
    return left_out


def require() -> Any:
    """The module lance; UserError where it is not installed."""
    try:
        import lance
    except ImportError:
        raise UserError(
            "format 'lance' needs the package pylance: install the extra, "
            "pip install 'cotbert[lance]'"
        ) from None
    return lance


def _schema(embeddings: Embeddings) -> pa.Schema:
    element = embeddings.schema.field("embedding").type.value_type
    element = pa.float32() if element == pa.int8() else element
    return pa.schema(
        [
            pa.field("id", pa.string() if embeddings.text_ids else pa.int64(), nullable=False),
            *(embeddings.schema.field(name) for name in embeddings.kept),
            pa.field(VECTOR, pa.list_(element, embeddings.dimension)),
        ]
    )


def _table(block: Block, schema: pa.Schema) -> pa.Table:
    vector = schema.field(VECTOR).type
    flat = block.vectors.astype(vector.value_type.to_pandas_dtype(), copy=False).reshape(-1)
    arrays = [
        block.column.combine_chunks().cast(schema.field("id").type),
        *block.table.columns,
        pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(flat)), type=vector),
    ]
    return pa.Table.from_arrays(arrays, schema=schema)
