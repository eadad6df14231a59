"""What stands in the place of a row that cannot be used."""

from __future__ import annotations


class Unusable(str):
    """The reason why, under which it is counted."""

    __slots__ = ()
