"""Read the headers of a Parquet column's pages, to know how much memory the pages take.

A few hundred bytes of Parquet can decode to gigabytes: a dictionary stores a text once for many
rows, DELTA_BYTE_ARRAY stores only differences from the row before, and pages are compressed. The
footer's sizes may be wrong, but pyarrow itself relies on the header of a page, so a page is never
longer than its header says. Headers are 30 bytes per 1 MiB or so, and nothing else is read.

Format: https://github.com/apache/parquet-format, thrift's compact protocol.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

DICTIONARY_PAGE = 2
DELTA_BYTE_ARRAY = 7
DICTIONARY_ENCODINGS = (2, 8)
# Enough for a header with the minimum and maximum of its page; a longer header is read again.
HEADER_BYTES, MOST_HEADER_BYTES = 1 << 10, 16 << 20
_I32, _BINARY, _LIST, _SET, _MAP, _STRUCT = 5, 8, 9, 10, 11, 12
# By page type (data page, dictionary, data page v2): the field id of its header, and the field id
# of the encoding in that header.
_OWN_HEADERS = {0: (5, 2), DICTIONARY_PAGE: (7, 2), 3: (8, 4)}
_FIXED_BYTES = {3: 1, 7: 8}
_MOST_DEPTH = 16


@dataclass(frozen=True)
class Page:
    """A page of a column.

    size: decompressed bytes. start, stored: offset and number of compressed bytes. values: number
    of values. encoding: id of the encoding in the format.
    """

    kind: int
    size: int
    start: int
    stored: int
    values: int
    encoding: int


def pages(file: Any, column: Any) -> Iterator[Page]:
    """Yield the pages of a column of a row group (pyarrow's ColumnChunkMetaData) in order.

    Raises ArrowInvalid for an invalid header.
    """
    starts = [column.data_page_offset, column.dictionary_page_offset or 0]
    place = min(start for start in starts if start > 0)
    end = place + column.total_compressed_size
    while place < end:
        fields, length = _header(file, place)
        page = _page(fields, place + length)
        yield page
        place = page.start + page.stored


def _page(fields: dict[int, Any], start: int) -> Page:
    kind, size, stored = (_number(fields, place) for place in (1, 2, 3))
    if size < 0 or stored < 0:
        raise pa.ArrowInvalid("a page has no size")
    place, encoding = _OWN_HEADERS.get(kind, (0, 0))
    own = fields.get(place)
    own = own if isinstance(own, dict) else {}
    return Page(kind, size, start, stored, _number(own, 1), _number(own, encoding))


def _number(fields: dict[int, Any], place: int) -> int:
    value = fields.get(place)
    return value if isinstance(value, int) else -1


def _header(file: Any, place: int) -> tuple[dict[int, Any], int]:
    """Return the fields of the header at offset `place`, and its length in bytes."""
    size = HEADER_BYTES
    while True:
        data = bytes(file.read_at(size, place))
        try:
            return _struct(data, 0, 0)
        except (IndexError, struct.error):
            if len(data) < size or size >= MOST_HEADER_BYTES:
                raise pa.ArrowInvalid("the header of a page is cut short") from None
            size *= 4


def _struct(data: bytes, at: int, depth: int) -> tuple[dict[int, Any], int]:
    """Return the i32 and struct fields of a struct, and the offset of its end.

    Like pyarrow's reader it skips fields of other types.
    """
    if depth > _MOST_DEPTH:
        raise pa.ArrowInvalid("the header of a page is nested too deep")
    fields: dict[int, Any] = {}
    number = 0
    while (head := data[at]) != 0:
        kind, step, at = head & 15, head >> 4, at + 1
        if step:
            number += step
        else:
            number, at = _zigzag(data, at)
        if kind == _STRUCT:
            fields[number], at = _struct(data, at, depth + 1)
        elif kind == _I32:
            fields[number], at = _zigzag(data, at)
        else:
            at = _after(data, at, kind, depth)
    return fields, at + 1


def _after(data: bytes, at: int, kind: int, depth: int) -> int:
    """Return the offset after a value of this type."""
    if kind in (1, 2):  # true and false take no byte
        return at
    if kind in _FIXED_BYTES:
        at += _FIXED_BYTES[kind]
    elif kind == _BINARY:
        length, at = _varint(data, at)
        at += length
    elif kind == _STRUCT:
        return _struct(data, at, depth + 1)[1]
    elif kind in (_LIST, _SET, _MAP):
        raise pa.ArrowInvalid("the header of a page holds a list")
    else:
        return _varint(data, at)[1]
    if at > len(data):
        raise IndexError(at)
    return at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise pa.ArrowInvalid("the header of a page holds a number that is too long")


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def longest_entry(file: Any, page: Page, codec: str) -> int:
    """Return the size of the longest value of a dictionary of byte arrays, or of the page if it
    cannot be decompressed."""
    data = bytes(file.read_at(page.stored, page.start))
    if codec != "UNCOMPRESSED":
        try:
            data = pa.decompress(data, page.size, codec=codec.lower(), asbytes=True)
        except (OSError, ValueError, pa.ArrowException):  # such as Hadoop's LZ4
            return page.size
    longest = at = 0
    unpack = struct.Struct("<I").unpack_from
    while at + 4 <= len(data):
        length = unpack(data, at)[0]
        longest = max(longest, length)
        at += 4 + length
    return min(longest, page.size)
