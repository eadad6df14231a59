"""Row ids from a column of the input: whole numbers, or text if any id is not a whole number.

The type is determined before any row is embedded: by a Parquet file's schema, or by the first rows
of each csv, tsv and jsonl file. A later id of another type makes its row unusable.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from pipelines.reading.line_reader import json_objects

INT64, STRING = "int64", "string"
# Number of rows of each file that are examined: 20 ms for csv.
SAMPLED_ROWS = 10_000


def as_id(value: Any, kind: str) -> int | str | None:
    """Return a value of an id column as an id of type `kind`, None if it is not one."""
    if kind == INT64:
        return value if type(value) is int and -(2**63) <= value < 2**63 else None
    if type(value) is int:
        return str(value)
    try:
        text = value.decode() if isinstance(value, bytes) else value
        return text if isinstance(text, str) and text.strip() and text.encode() else None
    except UnicodeError:
        return None


def id_of_cell(cell: str, kind: str) -> int | str | None:
    """Return the id in a cell of a csv or tsv file, None if it is not of type `kind`.

    A number that int64 would change, such as 007 or 2^63, is text.
    """
    if kind == STRING:
        return cell
    try:
        number = int(cell)
    except ValueError:
        return None
    return as_id(number, INT64) if str(number) == cell.strip() else None


def text_id_in_rows(rows: Iterable[Sequence[str]], place: int) -> str | None:
    """Return the first non-empty id in the first rows that is not a whole number."""
    cells = (row[place] for row in islice(rows, SAMPLED_ROWS) if len(row) > place)
    return next((c for c in cells if c.strip() and id_of_cell(c, INT64) is None), None)


def text_id_in_lines(lines: Iterable[bytes | None], column: str) -> str | None:
    """Return the first id in the first JSON lines that is text, or a number beyond int64."""
    values = (row.get(column) for row in json_objects(islice(lines, SAMPLED_ROWS)))
    return next((str(v) for v in values if type(v) in (str, int) and as_id(v, INT64) is None), None)
