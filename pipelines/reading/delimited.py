"""The rows of csv and tsv files, with an Unusable for each line that belongs to no row."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from itertools import repeat
from typing import Literal

from pipelines.reading.bad_rows import Unusable
from pipelines.reading.formats import kind_of
from pipelines.reading.line_reader import MOST_LINE_BYTES, file_lines

# Maximum number of characters of a cell. A longer cell results from a quote that is not closed.
MOST_CELL = 4 << 20
# Maximum number of characters of a row, since quoted line breaks could make it endless.
MOST_ROW = MOST_LINE_BYTES
_END = "\0the end\0"
_QUOTED = re.compile(r'"(?:[^"]+|"")*+"')


def delimited_rows(
    name: str, delimiter: str, encoding: str | None = None
) -> Iterator[list[str] | Unusable]:
    """Yield the cells of each row, the header first, and an Unusable for each line without a row.

    After a quote that is never closed, all further lines are unusable; they would otherwise become
    one cell. In a tsv a quote is part of the text, unless the whole cell is quoted, and a carriage
    return is white space, unless it ends the header.
    """
    csv.field_size_limit(MOST_CELL)
    long_lines: list[Unusable] = []
    is_tsv = delimiter == "\t" and kind_of(name) == "tsv"
    lines = _RowLines(_lines(name, is_tsv, long_lines, encoding))
    quoting: Literal[0, 3] = csv.QUOTE_NONE if is_tsv else csv.QUOTE_MINIMAL
    reader = csv.reader(lines, delimiter=delimiter, quoting=quoting)
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
            yield (list(map(_unquoted, row)) if is_tsv else row) or Unusable("empty")
    yield from long_lines


def _unquoted(cell: str) -> str:
    """Return the text of a cell between tabs, which may be quoted as in csv, on one line."""
    return cell[1:-1].replace('""', '"') if _QUOTED.fullmatch(cell) else cell


class _RowLines:
    """The lines of a file for csv.reader.

    A row of more than MOST_ROW characters raises csv.Error, and the next line begins a new row.
    """

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


def _lines(
    name: str, is_tsv: bool, long_lines: list[Unusable], encoding: str | None
) -> Iterator[str]:
    """Yield each line with its line break (\\n, \\r or \\r\\n), then a marker line, which becomes
    part of the last cell if a quote is still open at the end of the file."""
    splits = not is_tsv  # whether a carriage return ends a line
    for number, line in enumerate(file_lines(name, encoding=encoding)):
        if line is None:
            long_lines.append(Unusable("too_long"))
            continue
        splits = splits or (number == 0 and b"\r" in line.rstrip(b"\r"))
        if b"\r" in line and not splits:
            line = line.rstrip(b"\r").replace(b"\r", b" ")
        # bytes.splitlines only splits at \r, \n and \r\n.
        parts = (line + b"\n").splitlines(keepends=True) if b"\r" in line else (line + b"\n",)
        yield from (part.decode("utf-8", "surrogateescape") for part in parts)
    yield _END
