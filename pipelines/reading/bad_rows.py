"""What stands in the place of a row that cannot be used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# Characters of a row that are shown where it is listed.
SHOWN_CHARACTERS = 80


class Unusable(str):
    """The reason why, under which it is counted. excerpt: how what was found there begins."""

    __slots__ = ("excerpt",)
    excerpt: str

    def __new__(cls, reason: str, found: Any = "") -> Unusable:
        made = super().__new__(cls, reason)
        made.excerpt = excerpt(found)
        return made


@dataclass(frozen=True)
class BadRow:
    """A row that was dropped. row: its number, as an id would be; id: what its id column holds,
    None without one."""

    row: int
    id: Any
    reason: str
    text: str


def excerpt(found: Any) -> str:
    """The first SHOWN_CHARACTERS of anything, as text that can be written as UTF-8."""
    if found is None:
        return ""
    if isinstance(found, bytes):
        found = found[: 4 * SHOWN_CHARACTERS].decode("utf-8", "replace")
    text = found if isinstance(found, str) else str(found)
    return text[:SHOWN_CHARACTERS].encode("utf-8", "replace").decode("utf-8")
