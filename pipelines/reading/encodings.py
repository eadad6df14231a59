"""The encoding of text files: UTF-8, or a given one, which is converted to UTF-8 while reading.

A wrong encoding is detected by a file's first bytes, before any row is read. Invalid bytes make
their row unusable (`invalid_utf8`, or `invalid_encoding` if an encoding is given).
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator

from cotbert_core.errors import UserError

# Number of bytes of a file that are examined.
HEAD_BYTES = 4096
MARK = b"\xef\xbb\xbf"
# The encodings that read a text with a byte order mark, the one to advise first.
_MARKS = {
    codecs.BOM_UTF32_LE: ("utf-32", "utf-32-le"),  # must precede UTF-16's mark, which is its prefix
    codecs.BOM_UTF32_BE: ("utf-32", "utf-32-be"),
    codecs.BOM_UTF16_LE: ("utf-16", "utf-16-le"),
    codecs.BOM_UTF16_BE: ("utf-16", "utf-16-be"),
}
_WIDE = ("utf-16", "utf-32")
# In these the meaning of a byte depends on those before it, perhaps on earlier lines.
_STATEFUL = ("utf", "iso2022", "hz")
_ERRORS = "cotbert.invalid"
# Invalid bytes become a lone surrogate, which stays invalid in UTF-8.
codecs.register_error(_ERRORS, lambda error: ("\udcff", error.end))  # type: ignore[attr-defined]


def named_encoding(name: str | None) -> str | None:
    """Return Python's name for an encoding, None for UTF-8; UserError for an unknown one."""
    if name is None:
        return None
    try:
        "".encode(name)  # raises for codecs that are not text encodings, such as base64
        codecs.getincrementaldecoder(name)(_ERRORS).decode(b"", True)  # and this for those of names
        found = codecs.lookup(name).name
    except (LookupError, ValueError):
        raise UserError(
            f"encoding is {name!r}, which is unknown: give one such as utf-8, latin-1, cp1252 or "
            "utf-16"
        ) from None
    return None if found in ("utf-8", "utf-8-sig") else found


def wide_encodings(head: bytes) -> tuple[str, ...]:
    """Return the encodings that read a file in UTF-16 or UTF-32, the one to advise first.

    Returns () for any other file. Without a byte order mark, UTF-16 is known by the zero bytes of
    Latin letters.
    """
    found = next((names for mark, names in _MARKS.items() if head.startswith(mark)), ())
    return found or _without_mark(head[:HEAD_BYTES])


def check_encoding(name: str, head: bytes, encoding: str | None = None) -> None:
    """Raise UserError if a file that begins with `head` is not in the encoding (None: UTF-8)."""
    found = wide_encodings(head)
    if found and encoding not in found:
        given = f" and --encoding is {encoding}" if encoding else ""
        raise UserError(
            f"input {name!r} is {found[0].upper()}{given}: give --encoding {found[0]}, or convert "
            "this file if others have another encoding"
        )
    wide = encoding is not None and encoding.startswith(_WIDE)
    if wide and not found and head and b"\0" not in head and is_utf8(head):
        raise UserError(
            f"input {name!r} is UTF-8 and --encoding is {encoding}: leave --encoding out"
        )
    if encoding in _WIDE and head and not found:
        raise UserError(
            f"input {name!r} has no byte order mark and --encoding is {encoding}: give --encoding "
            f"{encoding}-le (the order on Windows) or {encoding}-be"
        )


def _without_mark(head: bytes) -> tuple[str, ...]:
    """Return utf-16-le or utf-16-be if nearly all zero bytes are at odd, or at even, offsets."""
    even, odd = head[::2], head[1::2]
    for zeros, rest, kind in ((odd, even, "utf-16-le"), (even, odd, "utf-16-be")):
        if zeros.count(0) >= max(2, 0.4 * len(zeros)) and rest.count(0) <= 0.1 * len(rest):
            return (kind,)
    return ()


def is_utf8(head: bytes) -> bool:
    """Return whether bytes are UTF-8; the last character may be cut off."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True


def looks_like_utf8(head: bytes, encoding: str | None) -> bool:
    """Return whether a file with another given encoding looks like non-ASCII UTF-8.

    Text in another encoding is rarely valid UTF-8 by chance.
    """
    return encoding is not None and not head.isascii() and is_utf8(head) and b"\0" not in head


def can_be_cut(encoding: str | None) -> bool:
    """Return whether a file can be read from any line break on (UTF-8, one-byte encodings)."""
    if encoding is None:
        return True
    try:
        single = len(bytes(range(256)).decode(encoding, "replace")) == 256
        return single and "\n".encode(encoding) == b"\n" and not encoding.startswith(_STATEFUL)
    except ValueError:
        return False


def as_utf8(blocks: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """Yield blocks of bytes converted to UTF-8; invalid bytes stay invalid."""
    decoder = codecs.getincrementaldecoder(encoding)(_ERRORS)
    for block in blocks:
        yield decoder.decode(block).encode("utf-8", "surrogatepass")
    yield decoder.decode(b"", True).encode("utf-8", "surrogatepass")
