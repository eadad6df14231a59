"""The rows of csv and tsv files; a line that belongs to no row comes as its reason."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import repeat

from pipelines.reading.bad_rows import Unusable
from pipelines.reading.line_reader import MOST_LINE_BYTES, file_lines

# Most characters of a cell. A longer cell comes from a quote that is not closed.
MOST_CELL = 4 << 20
# Characters of a row. Cells may hold line breaks between quotes, so a row might never end.
MOST_ROW = MOST_LINE_BYTES
_END = "\0the end\0"


def delimited_rows(
    name: str, delimiter: str, encoding: str | None = None
) -> Iterator[list[str] | Unusable]:
    """Yield the cells of each row, the header first, and an Unusable for each line without a row.

    After a quote that is never closed, all lines to the end of the file are without a row; they
    would otherwise become one cell.
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
    """The lines of a file for csv.reader; a row of more than MOST_ROW characters raises csv.Error,
    and the next line begins a new row."""

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
    """Yield each line with its line break (\\n, \\r or \\r\\n), then a marker line: if a quote is
    still open at the end of the file, the marker becomes part of the last cell."""
    for line in file_lines(name, encoding=encoding):
        if line is None:
            long_lines.append(Unusable("too_long"))
        else:
            # bytes.splitlines knows \r, \n and \r\n alone.
            parts = (line + b"\n").splitlines(keepends=True) if b"\r" in line else (line + b"\n",)
            yield from (part.decode("utf-8", "surrogateescape") for part in parts)
    yield _END
