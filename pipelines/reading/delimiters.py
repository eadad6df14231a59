"""The delimiter of a csv or tsv file, and its name."""

from __future__ import annotations

from collections.abc import Sequence

from cotbert_core.errors import UserError

NAMES = {";": "semicolons", "\t": "tabs", ",": "commas", "|": "vertical bars"}
# The command-line name of a delimiter that cannot be typed.
WORDS = {"\t": "tab"}


def named_delimiter(given: str | None) -> str | None:
    r"""Return the delimiter that --delimiter gives: one character, `tab` or `\t`; None if None."""
    words = {word: sign for sign, word in WORDS.items()} | {r"\t": "\t"}
    sign = words.get(given or "", given)
    if sign is not None and (len(sign) != 1 or sign in '"\r\n\0' or not sign.isascii()):
        raise UserError(
            f"delimiter is {given!r}: give one character, such as ';' or '|', or the word tab"
        )
    return sign


def other_delimiter(delimiter: str, header: Sequence[str], wanted: str) -> str | None:
    """Return the character that separates a header in place of its delimiter.

    Returns None unless the header has a single cell, or a cell contains the wanted column's name.
    """
    for sign in NAMES:
        names = [cell.strip() for cell in delimiter.join(header).split(sign)]
        if len(names) > 1 and sign != delimiter and (len(header) == 1 or wanted in names):
            return sign
    return None
