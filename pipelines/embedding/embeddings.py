"""Read a finished embeddings folder block by block; at most a row group is in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cotbert_core.errors import UserError
from cotbert_core.evaluation.nearest_neighbours import lengths
from cotbert_core.evaluation.passages import Passages
from cotbert_core.files import absolute_path, read_json
from pipelines.embedding.parts import check_columns, read_batches, read_footer, read_values
from pipelines.reading.data_folder import DIGESTS_FOLDER, PASSAGES_COLUMN, part_files
from pipelines.reading.manifests import EACH_ROW, check_manifest
from pipelines.storage.corpus import MANIFEST_FILE


@dataclass(frozen=True)
class Block:
    """Some rows of a folder, without the rows that have no direction.

    ids: (N,) int64, the ids, or the row numbers if ids are text. rows: (N,) int64, the rows'
    numbers in the folder. vectors: (N, D) float32, of which only the direction is that of the row.
    left_out: number of rows that are all zeros, or hold null, NaN or infinity. passages: the rows'
    passages that have a direction; None if the folder has none.
    """

    ids: np.ndarray
    rows: np.ndarray
    vectors: np.ndarray
    left_out: int
    passages: Passages | None = None


@dataclass(frozen=True)
class Embeddings:
    """An opened folder.

    starts: the number of each part's first row, followed by the number of all rows. scale: (D,)
    float32 by which int8 vectors are multiplied if one scale is that of all rows. None for other
    types, and if each row has its own, which no direction depends on.
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
        path = absolute_path(path)
        manifest = _manifest(path)
        parts = tuple(part_files(path))
        if not parts:
            raise UserError(f"embeddings {str(path)!r} hold no data/part-*.parquet: embed again")
        first, starts = read_footer(parts[0])[1], [0]
        for part in parts:
            metadata, schema = read_footer(part)
            check_columns(part, schema, manifest, first)
            starts.append(starts[-1] + metadata.num_rows)
        if starts[-1] != manifest["rows"]:
            raise UserError(
                f"embeddings {str(path)!r} hold {starts[-1]} rows and {MANIFEST_FILE} says "
                f"{manifest['rows']}: parts are missing or from another job; embed again"
            )
        element = first.field("embedding").type.value_type
        scale = _scale(path, manifest) if element == pa.int8() else None
        return cls(path, manifest, parts, tuple(starts), first, scale)

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
            yield from read_batches(part, ["id"])

    @property
    def has_passages(self) -> bool:
        """Whether rows have the vectors of their passages."""
        return self.manifest.get("passage_words") is not None

    @property
    def text_columns(self) -> list[str]:
        """The passed-through columns that hold text. Of the others only the ids may be text."""
        kinds = (pa.types.is_string, pa.types.is_large_string)
        others = (field for field in self.schema if field.name != "id")
        return [field.name for field in others if any(holds(field.type) for holds in kinds)]

    def blocks(self) -> Iterator[Block]:
        """Yield all rows in the order of the parts, with their passages if they have any."""
        columns = ["id", "embedding", *([PASSAGES_COLUMN] if self.has_passages else [])]
        for part, first in zip(self.parts, self.starts, strict=False):
            for batch in read_batches(part, columns):
                if batch["id"].null_count or batch["embedding"].null_count:
                    raise UserError(
                        f"part {str(part)!r} has rows without an id or a vector: embed again"
                    )
                yield self._block(pa.Table.from_batches([batch]), first)
                first += len(batch)

    def _block(self, table: pa.Table, first: int) -> Block:
        vectors = self._vectors(table["embedding"].combine_chunks())
        usable = ~np.isnan(lengths(vectors))
        if not usable.all():
            vectors, table = vectors[usable], table.filter(pa.array(usable))
        rows = first + np.flatnonzero(usable)
        ids = rows if self.text_ids else table["id"].to_numpy().astype(np.int64, copy=False)
        passages = self._passages(table) if self.has_passages else None
        return Block(ids, rows, vectors, len(usable) - len(rows), passages)

    def _vectors(self, column: pa.Array) -> np.ndarray:
        """Return the directions (N, D) in float32 of a column of N vectors."""
        values = column.flatten().to_numpy(zero_copy_only=False)
        vectors = values.reshape(-1, self.dimension).astype(np.float32, copy=False)
        return np.asarray(vectors if self.scale is None else vectors * self.scale)

    def _passages(self, table: pa.Table) -> Passages:
        """Return the passages that have a direction of the rows of a table."""
        lists = table[PASSAGES_COLUMN].combine_chunks()
        vectors = self._vectors(lists.flatten())
        of_row = np.repeat(np.arange(len(lists)), pc.list_value_length(lists).fill_null(0))
        usable = ~np.isnan(lengths(vectors))
        return Passages(vectors[usable], np.bincount(of_row[usable], minlength=len(lists)))

    def values(self, column: str, rows: Sequence[int]) -> dict[int, Any]:
        """Return the values of a column in the rows of these numbers, by row number.

        Only the row groups of these rows are read.
        """
        found: dict[int, Any] = {}
        left = sorted(set(rows))
        for part, start, stop in zip(self.parts, self.starts, self.starts[1:], strict=False):
            wanted = [row - start for row in left if start <= row < stop]
            if wanted:
                found |= {start + row: value for row, value in read_values(part, column, wanted)}
        return found

    def digests(self, rows: Sequence[int]) -> dict[int, bytes]:
        """Return the hashes of the embedded texts of these rows, by row number; none if the folder
        of the hashes was removed, or was not written by the version that made the embeddings."""
        parts = tuple(self.path / DIGESTS_FOLDER / part.name for part in self.parts)
        known = all(part.is_file() for part in parts)
        return replace(self, parts=parts).values("digest", rows) if known else {}


def _manifest(path: Path) -> dict[str, Any]:
    if not path.is_dir():
        raise UserError(
            f"embeddings {str(path)!r} is not a folder: create one with `cotbert embed`"
        )
    if path.name.endswith(".partial"):
        raise UserError(
            f"{str(path)!r} is the work of an unfinished command: give the same command again, and "
            f"then the folder {path.name.removesuffix('.partial')!r} beside it"
        )
    file = path / MANIFEST_FILE
    if not file.is_file():
        raise UserError(
            f"embeddings {str(path)!r} have no {MANIFEST_FILE}: give a finished folder of "
            "`cotbert embed`"
        )
    return check_manifest(file, read_json(file), "embeddings")


def _scale(path: Path, manifest: dict[str, Any]) -> np.ndarray | None:
    """Return the (D,) float32 scale; the manifest has one number for all dimensions or for each.

    None if each row has its own.
    """
    scale, dimension = manifest.get("scale"), int(manifest["dimension"])
    if scale == EACH_ROW:
        return None
    if scale is None or np.size(scale) not in (1, dimension):
        raise UserError(
            f"embeddings {str(path)!r} are int8 and their {MANIFEST_FILE} has no `scale` of 1 or "
            f"{dimension} numbers: embed again"
        )
    return np.broadcast_to(np.asarray(scale, np.float32), (dimension,))
