"""Pieces: bounded batches of a shard's usable rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipelines.reading.bad_rows import FEWER_CELLS, BadRow
from pipelines.reading.read_plan import ReadPlan

# Maximum rows of a piece: enough to sort by length, few enough for memory.
PIECE_ROWS = 8192
# Maximum characters of a piece, 2,048 per row, so pieces of long texts have fewer rows. It is 16 to
# 64 MiB, since Python uses 1 to 4 bytes per character.
PIECE_CHARACTERS = 16 << 20


@dataclass
class Piece:
    """Up to PIECE_ROWS usable rows, fewer if they hold more than PIECE_CHARACTERS characters.

    ids: values of the id column, or `numbers` if the plan has none. numbers: row numbers in the
    whole input. texts: the rows' first texts. paired_texts: a list per paired text. passthrough: a
    list of values per passed-through column. read: number of rows read, including dropped ones.
    bad: the dropped rows. short: numbers of the rows that are a ShortRow, kept or not.
    """

    ids: list[int | str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    paired_texts: list[list[str]] = field(default_factory=list)
    passthrough: list[list[Any]] = field(default_factory=list)
    read: int = 0
    bad: list[BadRow] = field(default_factory=list)
    short: list[int] = field(default_factory=list)

    @classmethod
    def empty(cls, plan: ReadPlan, tagged: bool = False) -> Piece:
        """Return an empty piece with the columns of the plan. tagged: whether the reader adds the
        document of each row as a last passed-through value."""
        return cls(
            paired_texts=[[] for _ in plan.paired_columns],
            passthrough=[[] for _ in range(len(plan.keep) + tagged)],
        )

    def add(self, number: int, row_id: int | str, texts: list[str], values: Sequence[Any]) -> int:
        """Add a row and return its size in characters. values: its passed-through values."""
        self.numbers.append(number)
        self.ids.append(row_id)
        self.texts.append(texts[0])
        if not self.paired_texts and not self.passthrough:  # in a third of the time
            return len(texts[0])
        for column, text in zip(self.paired_texts, texts[1:], strict=True):
            column.append(text)
        for passed, value in zip(self.passthrough, values, strict=True):
            passed.append(value)
        return sum(map(len, texts)) + sum(map(size_of, values))

    @property
    def dropped(self) -> Counter[str]:
        """The number of dropped rows by reason."""
        return Counter(row.reason for row in self.bad)

    @property
    def faults(self) -> Iterator[tuple[str, int]]:
        """(reason, row number) of the dropped rows and of the short ones."""
        yield from ((row.reason, row.row) for row in self.bad)
        yield from ((FEWER_CELLS, number) for number in self.short)


def size_of(value: Any) -> int:
    """Return the characters of a text; 8 for another value, and 8 for each value of a list."""
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, dict):
        return 8 + sum(map(size_of, value.values()))
    return 8 + sum(map(size_of, value)) if isinstance(value, list) else 8
