"""Rows that cannot be used, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cotbert_core.training.batches import COLUMNS

# Maximum number of characters of a bad row that are shown.
SHOWN_CHARACTERS = 80
# Prefixes of the reasons for a row's first, second and third text.
PREFIXES = ("", *(f"{name}_" for name in COLUMNS))
INVALID_UTF8 = "invalid_utf8"
# Counted like a reason, though such a row (ShortRow) is kept.
FEWER_CELLS = "fewer_cells"


class Unusable(str):
    """The reason why a row or text cannot be used, in place of the row or text.

    excerpt: the beginning of its content.
    """

    __slots__ = ("excerpt",)
    excerpt: str

    def __new__(cls, reason: str, found: Any = "") -> Unusable:
        made = super().__new__(cls, reason)
        made.excerpt = excerpt(found)
        return made


class ShortRow(list[Any]):
    """The values of a row with fewer cells than the header, or of a JSON row without a kept key;
    the missing values are None."""


# Pairs of a row's id and its values, which are the texts in the plan's order and the passed-through
# values, or the reason why the row cannot be used.
RawRows = Iterator[tuple[Any, Sequence[Any] | Unusable]]


@dataclass(frozen=True)
class BadRow:
    """A row that was dropped.

    row: its number in the whole input. id: its value in the id column, None without one.
    """

    row: int
    id: Any
    reason: str
    text: str


def excerpt(found: Any) -> str:
    """Return the first SHOWN_CHARACTERS of any value, as text that can be written as UTF-8."""
    if found is None:
        return ""
    if isinstance(found, bytes):
        found = found[: 4 * SHOWN_CHARACTERS].decode("utf-8", "replace")
    text = found if isinstance(found, str) else str(found)
    return text[:SHOWN_CHARACTERS].encode("utf-8", "replace").decode("utf-8")


def with_prefix(counts: Mapping[str, int], prefix: str) -> dict[str, int]:
    """Return the counts above 0 whose keys begin with a prefix, sorted, by the rest of the key."""
    named = ((k.removeprefix(prefix), n) for k, n in sorted(counts.items()) if k.startswith(prefix))
    return {name: n for name, n in named if n}


def reasons_of(dropped: Mapping[str, int]) -> str:
    """Return numbers of dropped rows by reason as text, such as "3 empty, 1 too_long"."""
    return ", ".join(f"{n} {reason}" for reason, n in dropped.items()) or "none read"
