"""Read a finished embeddings folder block by block; at most a row group is in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cotbert_core.errors import UserError
from cotbert_core.evaluation.nearest_neighbours import lengths
from cotbert_core.files import read_json
from pipelines.reading.manifests import check_embeddings
from pipelines.reading.parquet_batches import batches, decoded
from pipelines.storage.corpus import MANIFEST_FILE

# Rows of a block, as `cotbert embed` writes them: 12 MB of 384 float32.
BLOCK_ROWS = 8192
# Element types of vectors; int8 are multiplied by the manifest's scale.
ELEMENTS = (pa.float32(), pa.float16(), pa.int8())


@dataclass(frozen=True)
class Block:
    """Some rows of a folder, without the rows that have no direction.

    ids: (N,) int64, the ids, or the row numbers if ids are text. column: the ids as they are
    stored. rows: (N,) int64, the rows' numbers in the folder. vectors: (N, D) float32. table: the
    other requested columns. left_out: number of rows that are all zeros, or hold null, NaN or
    infinity.
    """

    ids: np.ndarray
    column: pa.ChunkedArray
    rows: np.ndarray
    vectors: np.ndarray
    table: pa.Table
    left_out: int


@dataclass(frozen=True)
class Embeddings:
    """An opened folder.

    starts: the number of each part's first row, followed by the number of all rows. scale: (D,)
    float32 by which int8 vectors are multiplied, None for other types.
    """

    path: Path
    manifest: dict[str, Any]
    parts: tuple[Path, ...]
    starts: tuple[int, ...]
    schema: pa.Schema
    scale: np.ndarray | None

    @classmethod
    def open(cls, path: str | Path) -> Embeddings:
        """Open a folder; UserError unless its parts are complete and as its manifest says."""
        path = Path(path).expanduser().absolute()
        manifest = _manifest(path)
        parts = tuple(sorted(path.glob("part-*.parquet")))
        if not parts:
            raise UserError(f"embeddings {str(path)!r} hold no part-*.parquet: embed again")
        starts: list[int] = [0]
        schemas: list[pa.Schema] = []
        for part in parts:
            metadata, schema = _footer(part)
            _check_columns(part, schema, int(manifest["dimension"]), schemas[:1])
            starts.append(starts[-1] + metadata.num_rows)
            schemas.append(schema)
        if starts[-1] != manifest["rows"]:
            raise UserError(
                f"embeddings {str(path)!r} hold {starts[-1]} rows and {MANIFEST_FILE} says "
                f"{manifest['rows']}: parts are missing or from another job; embed again"
            )
        element = schemas[0].field("embedding").type.value_type
        scale = _scale(path, manifest) if element == pa.int8() else None
        return cls(path, manifest, parts, tuple(starts), schemas[0], scale)

    def __len__(self) -> int:
        return self.starts[-1]

    @property
    def dimension(self) -> int:
        """D, the size of a vector."""
        return int(self.manifest["dimension"])

    @property
    def text_ids(self) -> bool:
        """Whether ids are text rather than whole numbers."""
        return bool(pa.types.is_string(self.schema.field("id").type))

    def id_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the ids of all rows, as they are stored, in the order of the parts."""
        for part in self.parts:
            yield from _batches(part, ["id"])

    @property
    def passthrough_columns(self) -> list[str]:
        """The columns that `embed` passed through: all except id and vector."""
        return [name for name in self.schema.names if name not in ("id", "embedding")]

    def blocks(self, columns: Sequence[str] = ()) -> Iterator[Block]:
        """Yield all rows in the order of the parts, with these passed-through columns."""
        for part, first in zip(self.parts, self.starts, strict=False):
            for batch in _batches(part, ["id", "embedding", *columns]):
                if batch["id"].null_count or batch["embedding"].null_count:
                    raise UserError(
                        f"part {str(part)!r} has rows without an id or a vector: embed again"
                    )
                yield self._block(pa.Table.from_batches([batch]), first)
                first += len(batch)

    def _block(self, table: pa.Table, first: int) -> Block:
        embedding = table["embedding"].combine_chunks()
        values = embedding.flatten().to_numpy(zero_copy_only=False)
        vectors = values.reshape(-1, self.dimension).astype(np.float32, copy=False)
        if self.scale is not None:
            vectors = vectors * self.scale
        usable = ~np.isnan(lengths(vectors))
        rest = table.drop_columns(["embedding"])
        if not usable.all():
            vectors, rest = vectors[usable], rest.filter(pa.array(usable))
        rows = first + np.flatnonzero(usable)
        ids = rows if self.text_ids else rest["id"].to_numpy().astype(np.int64, copy=False)
        left_out = len(table) - len(rows)
        return Block(ids, rest["id"], rows, vectors, rest.drop_columns(["id"]), left_out)

    def values(self, column: str, rows: Sequence[int]) -> dict[int, Any]:
        """Return the values of a column in the rows of these numbers, by row number.

        Only the row groups of these rows are read.
        """
        found: dict[int, Any] = {}
        left = sorted(set(rows))
        for part, start, stop in zip(self.parts, self.starts, self.starts[1:], strict=False):
            wanted = [row - start for row in left if start <= row < stop]
            if wanted:
                found |= {start + row: value for row, value in _values(part, column, wanted)}
        return found


def _manifest(path: Path) -> dict[str, Any]:
    if not path.is_dir():
        raise UserError(
            f"embeddings {str(path)!r} is not a folder: create one with `cotbert embed`"
        )
    if path.name.endswith(".partial"):
        raise UserError(
            f"embeddings {str(path)!r} are unfinished: give the same `cotbert embed` command again"
        )
    file = path / MANIFEST_FILE
    if not file.is_file():
        raise UserError(
            f"embeddings {str(path)!r} have no {MANIFEST_FILE}: give a finished folder of "
            "`cotbert embed`"
        )
    manifest = read_json(file)
    wanted = ("rows", "dimension", "model")
    if not isinstance(manifest, dict) or not all(key in manifest for key in wanted):
        raise UserError(
            f"{str(file)!r} is not the manifest of embeddings: give a folder made by "
            "`cotbert embed`"
        )
    return check_embeddings(file, manifest)


def _footer(part: Path) -> tuple[pq.FileMetaData, pa.Schema]:
    try:
        file = pq.ParquetFile(part)
        return file.metadata, file.schema_arrow
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(part, error) from None


def _batches(part: Path, columns: list[str]) -> Iterator[pa.RecordBatch]:
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
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return UserError(f"part {str(part)!r} cannot be read ({reason}): copy it again or embed again")


def _check_columns(
    part: Path, schema: pa.Schema, dimension: int, others: Sequence[pa.Schema]
) -> None:
    """Raise UserError unless a part has the right columns. others: the first part's schema, which
    all parts must have; empty for the first part."""
    names = schema.names
    kind = schema.field("id").type if "id" in names else pa.null()
    if "embedding" not in names or not (pa.types.is_integer(kind) or pa.types.is_string(kind)):
        raise UserError(
            f"part {str(part)!r} lacks a column `id` of whole numbers or text, or a column "
            "`embedding` of lists: embed again"
        )
    vector = schema.field("embedding").type
    if not pa.types.is_fixed_size_list(vector) or vector.value_type not in ELEMENTS:
        raise UserError(
            f"part {str(part)!r} holds vectors of type {vector}: they must be fixed-size lists of "
            f"{', '.join(map(str, ELEMENTS))}"
        )
    if vector.list_size != dimension:
        raise UserError(
            f"part {str(part)!r} holds vectors of {vector.list_size} dimensions and "
            f"{MANIFEST_FILE} says {dimension}: it is from another job; embed again"
        )
    if others and not schema.equals(others[0]):
        raise UserError(
            f"part {str(part)!r} has other columns or types than the first part: embed again"
        )


def _scale(path: Path, manifest: dict[str, Any]) -> np.ndarray:
    """Return the (D,) float32 scale; the manifest has one number for all dimensions or for each."""
    dimension = int(manifest["dimension"])
    try:
        scale = np.asarray(manifest.get("scale"), np.float32)
        wanted = scale.shape in ((), (1,), (dimension,)) and bool((scale > 0).all())
    except (TypeError, ValueError):
        wanted = False
    if not wanted or not np.isfinite(scale).all():
        raise UserError(
            f"embeddings {str(path)!r} are int8 and their {MANIFEST_FILE} has no usable `scale`: "
            f"it must be a number above 0 or {dimension} of them; embed again"
        )
    return np.broadcast_to(scale, (dimension,))


def _values(part: Path, column: str, wanted: Sequence[int]) -> Iterator[tuple[int, Any]]:
    """Yield (row of the part, value) for some rows of a part. wanted: rows in ascending order."""
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
