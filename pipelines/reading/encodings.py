"""Text that is not UTF-8 told from its first bytes, before it becomes rubbish rows."""

from __future__ import annotations

import codecs

from cotbert_core.errors import UserError

# Bytes of a file that are looked at.
HEAD_BYTES = 4096
_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",  # before UTF-16's, with which it begins
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}


def check_encoding(name: str, head: bytes) -> None:
    """UserError when a text file that begins with `head` is UTF-16 or UTF-32, by its mark or,
    without one, by the zero bytes of its Latin letters."""
    found = next((kind for mark, kind in _MARKS.items() if head.startswith(mark)), None)
    found = found or _without_mark(head[:HEAD_BYTES])
    if found:
        raise UserError(
            f"input {name!r} is {found}: make it UTF-8, e.g. with `iconv -f {found} -t UTF-8`"
        )


def _without_mark(head: bytes) -> str | None:
    """Every other byte zero and hardly one of the rest: no text in UTF-8 looks so."""
    even, odd = head[::2], head[1::2]
    for zeros, rest, kind in ((odd, even, "UTF-16LE"), (even, odd, "UTF-16BE")):
        if zeros.count(0) >= max(2, 0.4 * len(zeros)) and rest.count(0) <= 0.1 * len(rest):
            return kind
    return None
