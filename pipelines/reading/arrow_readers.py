"""The raw rows of Parquet files and of hub data sets, which are both read as Arrow batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from cotbert_core.errors import UserError
from pipelines.reading import hub_datasets, pieces
from pipelines.reading.bad_rows import RawRows
from pipelines.reading.parquet_batches import batches, split
from pipelines.reading.read_plan import ReadPlan, Shard

_NANOSECONDS = pa.time64("ns")


def read_parquet(shard: Shard, plan: ReadPlan) -> RawRows:
    """Yield the rows of the shard's row groups."""
    groups = range(shard.start, shard.stop)
    for batch in batches(shard.path, groups, _columns(plan), pieces.PIECE_ROWS):
        yield from _rows_of(batch, plan)


def read_hub(shard: Shard, plan: ReadPlan) -> RawRows:
    """Yield the shard's rows of a data set."""
    for start in range(shard.start, shard.stop, pieces.PIECE_ROWS):
        stop = min(start + pieces.PIECE_ROWS, shard.stop)
        table = hub_datasets.rows(shard.path, start, stop)
        for batch in table.select(_columns(plan)).to_batches():
            for part in split(batch):
                yield from _rows_of(part, plan)


def _columns(plan: ReadPlan) -> list[str]:
    return list(dict.fromkeys([*plan.texts, *filter(None, [plan.id_column]), *plan.keep]))


def _rows_of(batch: pa.RecordBatch, plan: ReadPlan) -> RawRows:
    values = [_as_bytes(batch.column(name)) for name in plan.texts]
    values += [_passthrough(batch.column(name), name, plan) for name in plan.keep]
    ids = _ids(batch.column(plan.id_column)) if plan.id_column else [None] * len(batch)
    yield from zip(ids, zip(*values, strict=True), strict=True)


def _ids(column: pa.Array) -> list[Any]:
    return column.to_pylist() if pa.types.is_integer(column.type) else _as_bytes(column)


def _as_bytes(column: pa.Array) -> list[bytes | None]:
    """Return texts as bytes, since pyarrow does not check that a string column is valid UTF-8."""
    if pa.types.is_dictionary(column.type):
        return _decoded_once(column, _as_bytes)
    values: list[bytes | None] = column.cast(pa.large_binary()).to_pylist()
    return values


def _passthrough(column: pa.Array, name: str, plan: ReadPlan) -> list[Any]:
    """Return the values of a passed-through column; UserError for a time that Python cannot hold:
    beyond the years 1 to 9999, or a time of day with nanoseconds."""
    try:
        return _as_python(column.cast(pa.time64("us")) if column.type == _NANOSECONDS else column)
    except (OverflowError, ValueError) as error:
        raise UserError(
            f"column {name!r} is of type {column.type} and holds a value that cannot be copied "
            f"({error}): write it as text or whole numbers, or leave out {plan.keep_option}"
        ) from None


def _as_python(column: pa.Array) -> list[Any]:
    """Return the values of a passed-through column; invalid UTF-8 becomes U+FFFD."""
    if pa.types.is_dictionary(column.type):
        return _decoded_once(column, _as_python)
    try:
        values: list[Any] = column.to_pylist()
    except UnicodeDecodeError:
        values = [v if v is None else v.decode("utf-8", "replace") for v in _as_bytes(column)]
    return values


def _decoded_once(
    column: pa.DictionaryArray, convert: Callable[[pa.Array], list[Any]]
) -> list[Any]:
    """Return the values of a dictionary column, with equal values as one object to save memory."""
    indices = column.indices
    used = indices.unique().drop_null()
    values = dict(zip(used.to_pylist(), convert(column.dictionary.take(used)), strict=True))
    return [None if index is None else values[index] for index in indices.to_pylist()]
