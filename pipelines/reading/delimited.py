"""Rows of csv and tsv files: what belongs to no row is told under its reason, line by line."""

from __future__ import annotations

import csv
from collections.abc import Iterator

from pipelines.reading.lines import file_lines
from pipelines.reading.unusable import Unusable

# More characters in one cell come of a quote that is not closed: the rest of the file is no cell.
MOST_CELL = 4 << 20
_END = "\0the end\0"


def delimited_rows(
    name: str, delimiter: str, encoding: str | None = None
) -> Iterator[list[str] | Unusable]:
    """The cells of each row, the header's first. An Unusable stands for each line that is in no
    row: after a quote that nothing closes all lines to the end, which would else become one cell.
    """
    csv.field_size_limit(MOST_CELL)
    long_lines: list[Unusable] = []
    reader = csv.reader(_lines(name, long_lines, encoding), delimiter=delimiter)
    while True:
        before = reader.line_num
        try:
            row = next(reader)
        except StopIteration:
            break
        except csv.Error:
            lines = reader.line_num - before
            yield from [Unusable("too_long" if lines == 1 else "unclosed_quote")] * lines
            continue
        if row and row[-1].endswith(_END):
            found = row[-1].removesuffix(_END)
            yield from [Unusable("unclosed_quote", found)] * (reader.line_num - before - 1)
        else:
            yield row or Unusable("empty")
    yield from long_lines


def _lines(name: str, long_lines: list[Unusable], encoding: str | None) -> Iterator[str]:
    """Lines with their breaks, old Macintoshes' too, and at last one by which a quote that is
    still open is known."""
    for line in file_lines(name, encoding=encoding):
        if line is None:
            long_lines.append(Unusable("too_long"))
        else:
            # bytes.splitlines knows \r, \n and \r\n alone.
            parts = (line + b"\n").splitlines(keepends=True) if b"\r" in line else (line + b"\n",)
            yield from (part.decode("utf-8", "surrogateescape") for part in parts)
    yield _END
