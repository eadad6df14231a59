"""The sign between the cells of a csv or tsv file, and how it is named."""

from __future__ import annotations

from collections.abc import Sequence

from cotbert_core.errors import UserError

# The delimiter of each format that has one.
DELIMITERS = {"csv": ",", "tsv": "\t"}
NAMES = {";": "semicolons", "\t": "tabs", ",": "commas", "|": "vertical bars"}
# How a delimiter is written on the command line, if it cannot be typed.
WORDS = {"\t": "tab"}


def named_delimiter(given: str | None) -> str | None:
    r"""Return the sign that --delimiter names: one character, `tab` or `\t`; None stays None."""
    words = {word: sign for sign, word in WORDS.items()} | {r"\t": "\t"}
    sign = words.get(given or "", given)
    if sign is not None and (len(sign) != 1 or sign in '"\r\n\0' or not sign.isascii()):
        raise UserError(
            f"delimiter is {given!r}: give one character, such as ';' or '|', or the word tab"
        )
    return sign


def other_delimiter(delimiter: str, header: Sequence[str], wanted: str) -> str | None:
    """Return the sign that separates a header in place of its delimiter.

    None unless the header has a single cell, or the name of the wanted column is inside one.
    """
    for sign in NAMES:
        names = [cell.strip() for cell in delimiter.join(header).split(sign)]
        if len(names) > 1 and sign != delimiter and (len(header) == 1 or wanted in names):
            return sign
    return None
