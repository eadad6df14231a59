"""Convert float vectors to their stored form: fewer dimensions, unit length, fewer bits, Arrow.

int8 is symmetric with one scale per row: stored = round(value / scale), so value = stored * scale
to within half a scale. The scale is the largest absolute value of the row's vector and passages
divided by 127, so no value is clipped. Of the vectors that all-MiniLM-L6-v2 gives 400 docstrings
and their 1,895 passages, the lowest cosine of a stored one to the exact one is 0.99993. With the
scale per dimension of earlier versions, computed from whole texts alone, it was 0.9964.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cotbert_core.evaluation.passages import Passages
from cotbert_core.files import read_json
from pipelines.embedding.options import ID_COLUMN, SCALE_COLUMN, VECTOR_COLUMN
from pipelines.embedding.parts import ELEMENTS
from pipelines.reading.data_folder import PASSAGES_COLUMN, part_files
from pipelines.reading.ids import INT64, STRING
from pipelines.reading.manifests import EACH_ROW
from pipelines.storage.corpus import MANIFEST_FILE

# Key of a part's schema metadata: a JSON object with what is needed to use the vectors.
METADATA_KEY = "cotbert.embedding"
MOST_INT8 = 127


@dataclass(frozen=True)
class Storage:
    """The stored form of vectors of D dimensions.

    dimension: number of leading dimensions that are stored. normalize: whether vectors are scaled
    to unit length after that. passthrough: passed-through columns with their types. metadata:
    written into every part. id_type: int64 or string. passages: whether a row has the vectors of
    its passages too.
    """

    dimension: int
    dtype: str
    normalize: bool
    passthrough: tuple[tuple[str, Any], ...] = ()
    metadata: Mapping[str, Any] | None = None
    id_type: str = INT64
    passages: bool = False

    @property
    def schema(self) -> pa.Schema:
        """The schema of every part: id, the passed-through columns, embedding, perhaps passages,
        and the scale of int8."""
        fields = [
            (ID_COLUMN, self._ids),
            *self.passthrough,
            (VECTOR_COLUMN, self.vector),
            *([(PASSAGES_COLUMN, pa.list_(self.vector))] if self.passages else []),
            *([(SCALE_COLUMN, pa.float32())] if self.dtype == "int8" else []),
        ]
        return pa.schema(fields, {METADATA_KEY: json.dumps(self.metadata or {})})

    @property
    def vector(self) -> pa.DataType:
        """The type of a stored vector."""
        return pa.list_(ELEMENTS[self.dtype], self.dimension)

    @property
    def _ids(self) -> pa.DataType:
        return pa.string() if self.id_type == STRING else pa.int64()

    def quantize(
        self, vectors: np.ndarray, passages: Passages
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the values of (N, D) vectors and of the (P, D) vectors of their passages as they
        are stored, (N, dimension) and (P, dimension), and their scales (N,), 1 except for int8."""
        own, others = (
            shorten(some, self.dimension, self.normalize) for some in (vectors, passages.vectors)
        )
        scales = np.ones(len(own), np.float32)
        if self.dtype == "int8":
            row = np.repeat(np.arange(len(own)), passages.counts)
            most = np.abs(own).max(axis=1)
            np.maximum.at(most, row, np.abs(others).max(axis=1))
            scales = np.where(most > 0, most / MOST_INT8, scales)
            own, others = np.rint(own / scales[:, None]), np.rint(others / scales[row, None])
        return own.astype(self.dtype), others.astype(self.dtype), scales

    def lists(self, stored: np.ndarray, counts: np.ndarray) -> pa.Array:
        """Return N lists of the (P, dimension) stored vectors of passages. counts: (N,) of them."""
        starts = np.concatenate([np.zeros(1, np.int32), np.cumsum(counts, dtype=np.int32)])
        return pa.ListArray.from_arrays(starts, self._vectors(stored), pa.list_(self.vector))

    def _vectors(self, stored: np.ndarray) -> pa.Array:
        flat = pa.array(stored.reshape(-1), ELEMENTS[self.dtype])
        return pa.FixedSizeListArray.from_arrays(flat, self.dimension)

    def table(
        self,
        ids: Sequence[int | str],
        passthrough: Sequence[Sequence[Any]],
        rows: StoredRows,
    ) -> pa.Table:
        """Return the table of N rows."""
        columns = [pa.array(ids, self._ids)]
        columns += [
            passthrough_array(v, kind)
            for v, (_, kind) in zip(passthrough, self.passthrough, strict=True)
        ]
        columns += [self._vectors(rows.stored), *([rows.passages] if self.passages else [])]
        columns += [pa.array(rows.scales)] if self.dtype == "int8" else []
        return pa.Table.from_arrays(columns, schema=self.schema)


@dataclass(frozen=True)
class StoredRows:
    """The rows of a block that have a vector.

    rows: (M,) their places in the block. stored: (M, D) as they are stored. passages: M lists of
    vectors as they are stored. scales: (M,). long: (M,), as in the file of digests. duplicates:
    texts that were there before.
    """

    rows: np.ndarray
    stored: np.ndarray
    passages: pa.Array
    scales: np.ndarray
    long: np.ndarray
    duplicates: int


def in_order(parts: Sequence[StoredRows]) -> StoredRows:
    """Return the rows of all parts of a block in the order of their places."""
    if len(parts) == 1:
        return parts[0]
    rows = np.concatenate([part.rows for part in parts])
    order = np.argsort(rows)
    return StoredRows(
        rows[order],
        np.concatenate([part.stored for part in parts])[order],
        pa.concat_arrays([part.passages for part in parts]).take(order),
        np.concatenate([part.scales for part in parts])[order],
        np.concatenate([part.long for part in parts])[order],
        sum(part.duplicates for part in parts),
    )


def shorten(vectors: np.ndarray, dimensions: int, normalize: bool) -> np.ndarray:
    """Return the leading dimensions of (N, D) vectors, scaled to unit length if `normalize`."""
    vectors = np.ascontiguousarray(vectors[:, :dimensions], np.float32)
    if not normalize:
        return vectors
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(norms, 1e-12), np.float32)


def write_part(table: pa.Table, path: Path) -> None:
    """Write a part without a dictionary for the vectors, whose values hardly repeat.

    Floats are not compressed: zstd saves 8 % of their bytes and takes a third of the time in which
    a search reads them. int8 are, because Parquet stores them in 4 bytes.
    """
    vectors = (VECTOR_COLUMN, PASSAGES_COLUMN)
    columns = [name for name in table.column_names if name not in vectors]
    compression: Any = "zstd"
    if table.schema.field(VECTOR_COLUMN).type.value_type != ELEMENTS["int8"]:
        pq.write_table(table.slice(0, 0), empty := pa.BufferOutputStream())
        schema = pq.ParquetFile(empty.getvalue()).schema  # has the paths of lists' values
        paths = [schema.column(number).path for number in range(len(schema))]
        compression = {p: "none" if p.split(".")[0] in vectors else "zstd" for p in paths}
    pq.write_table(table, path, compression=compression, use_dictionary=columns)


def passthrough_array(values: Sequence[Any], kind: Any) -> pa.Array:
    """Return the array of a passed-through column, converted to text if that is its type."""
    if pa.types.is_string(kind):
        values = [as_text(value) for value in values]
    return pa.array(values, kind)


def as_text(value: Any) -> str | None:
    """Return text unchanged, any other value as JSON; invalid characters become `?`."""
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.encode("utf-8", "replace").decode("utf-8")


def read_embeddings(folder: Path | str) -> tuple[np.ndarray, np.ndarray]:
    """Return the (N,) ids (int64, or objects for text) and the (N, D) vectors of a folder; int8 is
    converted to float32."""
    folder = Path(folder)
    scale = read_json(folder / MANIFEST_FILE).get("scale")
    columns = [ID_COLUMN, VECTOR_COLUMN, *([SCALE_COLUMN] if scale == EACH_ROW else [])]
    tables = [pq.ParquetFile(part).read(columns=columns) for part in part_files(folder)]
    table = pa.concat_tables(tables)
    # Copies that the caller may change, unlike arrays in Arrow's memory.
    ids = np.concatenate(table[ID_COLUMN].chunks)
    vectors = np.concatenate([chunk.flatten() for chunk in table[VECTOR_COLUMN].chunks])
    values = vectors.reshape(len(table), -1)
    if scale == EACH_ROW:
        scale = np.asarray(table[SCALE_COLUMN])[:, None]
    return ids, values if scale is None else values * np.float32(scale)
