"""The types of the columns that `cotbert embed --keep` passes through."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cotbert_core.errors import UserError
from pipelines.reading import hub_datasets, locations
from pipelines.reading.formats import kind_of
from pipelines.reading.read_plan import ReadPlan

TYPED = ("parquet", "hub")


def passthrough_types(plan: ReadPlan) -> tuple[tuple[str, Any], ...]:
    """Return each passed-through column with its Arrow type.

    It is the type in the files if all files have types, otherwise text: csv has no types, and those
    of JSON may change from row to row. Raises UserError if two files disagree.
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
                    "give files with the same type, or leave the column out of --keep"
                )
    return tuple(types.items())


def _schema(name: str) -> Any:
    if kind_of(name) == "hub":
        return hub_datasets.describe(name)[1]
    return pq.read_schema(locations.open_file(name))


def _plain(kind: Any) -> Any:
    """Return the type of a dictionary's values, and string for text types of any width."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    wide = pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    return pa.string() if wide else kind
