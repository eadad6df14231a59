"""The types of the columns that `cotbert embed --keep` passes through."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cotbert_core.errors import UserError
from pipelines.reading import hub_datasets, locations
from pipelines.reading.formats import kind_of
from pipelines.reading.read_plan import Plan

TYPED = ("parquet", "hub")


def kept_types(plan: Plan) -> tuple[tuple[str, Any], ...]:
    """Each kept column with its Arrow type: that of the files where all have types, else text,
    since csv has none and those of JSON may change from row to row.

    UserError where two files disagree.
    """
    if not plan.keep or not all(kind_of(name) in TYPED for name in plan.files):
        return tuple((column, pa.string()) for column in plan.keep)
    first = _schema(plan.files[0])
    types = {column: _plain(first.field(column).type) for column in plan.keep}
    for name in plan.files[1:]:
        schema = _schema(name)
        for column, kind in types.items():
            found = _plain(schema.field(column).type)
            if found != kind:
                raise UserError(
                    f"column {column!r} is {kind} in {plan.files[0]!r} and {found} in {name!r}: "
                    "give files that agree, or leave it out of --keep"
                )
    return tuple(types.items())


def _schema(name: str) -> Any:
    if kind_of(name) == "hub":
        return hub_datasets.describe(name)[1]
    return pq.read_schema(locations.open_file(name))


def _plain(kind: Any) -> Any:
    """Text of any width as one type, of a dictionary what it holds."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    wide = pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    return pa.string() if wide else kind
