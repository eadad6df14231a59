"""Detect text files whose first bytes do not match their name or use."""

from __future__ import annotations

import re

from cotbert_core.errors import UserError
from pipelines.reading.locations import COMPRESSED, open_file, suffixes

# Magic bytes, the type of file they identify, and its suffix ("" if the type cannot be read).
_KINDS = (
    (b"\x1f\x8b", "gzip", ".gz"),
    (b"\x28\xb5\x2f\xfd", "zstandard", ".zst"),
    (b"PAR1", "Parquet", ".parquet"),
    (b"BZh91AY&SY", "bzip2", ""),
    (b"\xfd7zXZ\x00", "xz", ""),
    (b"PK\x03\x04", "a zip archive or an office document", ""),
    (b"%PDF-", "PDF", ""),
)
_ADVICE = "unpack it or save it as text first"
# Tags that rarely occur in plain text; the cleaning step knows all tags of HTML and wikis.
_TAG = re.compile(
    rb"<(?:/?(?:html|head|body|title|meta|link|script|style|div|span|p|br|a|ul|li|td|tr|table|img|"
    rb"h[1-6]|b|i|em|strong)(?:\s[^<>]*)?/?)>",
    re.IGNORECASE,
)
_PAGE = re.compile(rb"\s*(?:<\?xml[^>]*>\s*)?<(?:!doctype html|html)\b", re.IGNORECASE)
_JSON = re.compile(rb'(?:\xef\xbb\xbf)?\s*\[?\s*\{\s*"[^"\n]*"\s*:')
# A text has markup if at least this share of its first lines, and this many of them, have a tag.
LEAST_LINES, LEAST_TAGS = 0.1, 3


def check_content(name: str, head: bytes) -> None:
    """Raise UserError if a text file's first bytes, decompressed, are those of another format."""
    for first, kind, ending in _KINDS:
        if head.startswith(first):
            compressed = suffixes(name)[1]
            use = f"name it {_renamed(name, ending)!r}" if ending and not compressed else _ADVICE
            holds = f"holds {kind} inside its compression" if compressed else f"is {kind}, not text"
            raise UserError(f"input {name!r} {holds}: {use}")


def check_compression(name: str) -> None:
    """Raise UserError for a file whose compression does not match its suffix."""
    compression = suffixes(name)[1]
    if not compression:
        return
    with open_file(name) as raw:
        head = bytes(raw.read(512))
    found = next(((kind, end) for first, kind, end in _KINDS if head.startswith(first)), None)
    named = COMPRESSED[compression].replace("zstd", "zstandard")
    if not head or (found and found[0] == named):
        return
    what, ending = found or (("text", "") if b"\0" not in head else ("something else", ""))
    plain = name.removesuffix(name[-len(compression) :])
    use = f"name it {plain + ending!r}" if ending or what == "text" else _ADVICE
    raise UserError(f"input {name!r} is not {named} but {what}: {use}")


def _renamed(name: str, ending: str) -> str:
    """Return the name with the right suffix: `a.txt` becomes `a.txt.gz`, or `a.parquet`."""
    if ending in COMPRESSED:
        return name + ending
    return name.removesuffix(suffixes(name)[0]) + ending


def has_markup(head: bytes) -> bool:
    """Return whether a text that begins with `head` is a web page or has tags in many lines."""
    if _PAGE.match(head):
        return True
    lines = [line for line in head.splitlines() if line.strip()]
    tagged = sum(bool(_TAG.search(line)) for line in lines)
    return tagged >= LEAST_LINES * len(lines) and len(_TAG.findall(head)) >= LEAST_TAGS


def begins_with_json(head: bytes) -> bool:
    """Return whether a text that begins with `head` begins with an object of JSON, or with an array
    of objects."""
    return _JSON.match(head) is not None
