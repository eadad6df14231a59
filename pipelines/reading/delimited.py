"""Rows of csv and tsv files: what belongs to no row is told under its reason, line by line."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import repeat

from pipelines.reading.bad_rows import Unusable
from pipelines.reading.line_reader import MOST_LINE_BYTES, file_lines

# More characters in one cell come of a quote that is not closed: the rest of the file is no cell.
MOST_CELL = 4 << 20
# Characters of a row: each cell may hold a line break between quotes, and so a row never end.
MOST_ROW = MOST_LINE_BYTES
_END = "\0the end\0"


def delimited_rows(
    name: str, delimiter: str, encoding: str | None = None
) -> Iterator[list[str] | Unusable]:
    """The cells of each row, the header's first. An Unusable stands for each line that is in no
    row: after a quote that nothing closes all lines to the end, which would else become one cell.
    """
    csv.field_size_limit(MOST_CELL)
    long_lines: list[Unusable] = []
    lines = _RowLines(_lines(name, long_lines, encoding))
    reader = csv.reader(lines, delimiter=delimiter)
    while True:
        before = reader.line_num
        lines.characters = 0
        try:
            row = next(reader)
        except StopIteration:
            break
        except csv.Error:
            count = reader.line_num - before
            yield from repeat(Unusable("too_long" if count == 1 else "unclosed_quote"), count)
            continue
        if row and row[-1].endswith(_END):
            found = row[-1].removesuffix(_END)
            yield from repeat(Unusable("unclosed_quote", found), reader.line_num - before - 1)
        else:
            yield row or Unusable("empty")
    yield from long_lines


class _RowLines:
    """The lines of a file for csv.reader, which is stopped where they become one row of more than
    MOST_ROW characters; it begins a new row after that."""

    def __init__(self, lines: Iterator[str]) -> None:
        self.characters = 0
        self._lines = lines

    def __iter__(self) -> _RowLines:
        return self

    def __next__(self) -> str:
        if self.characters > MOST_ROW:
            raise csv.Error
        line = next(self._lines)
        self.characters += len(line)
        return line


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
