"""Read the lines of a file in bounded memory, whatever their length."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from pipelines.reading.encodings import MARK, as_utf8
from pipelines.reading.locations import open_stream

BLOCK_BYTES = 4 << 20
# A longer line is skipped without being held in memory. It is neither a sentence nor the JSON of
# one (1,000,000 characters take at most 12 MB as escapes), and parsed JSON takes up to 25 times as
# much memory.
MOST_LINE_BYTES = 16 << 20


def file_lines(
    name: str, start: int = 0, stop: int = 0, encoding: str | None = None
) -> Iterator[bytes | None]:
    """Yield the lines between two offsets as UTF-8, without line breaks; None for a too long one.

    start, stop: offsets in bytes (stop 0: the end). encoding: the file's encoding, None for UTF-8.
    A byte order mark is removed.
    """
    blocks = _blocks(name, start, stop)
    blocks = as_utf8(blocks, encoding) if encoding else blocks
    return lines(blocks if start else _without_mark(blocks))


def _without_mark(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the blocks, without a byte order mark at the beginning."""
    for number, block in enumerate(blocks):
        yield block if number else block.removeprefix(MARK)


def _blocks(name: str, start: int, stop: int) -> Iterator[bytes]:
    with open_stream(name) as file:
        if start:
            file.seek(start)
        left = (stop or sys.maxsize) - start
        while block := bytes(file.read(min(left, BLOCK_BYTES))):
            left -= len(block)
            yield block


def lines(blocks: Iterable[bytes]) -> Iterator[bytes | None]:
    """Yield the lines of blocks of bytes; None for a line of more than MOST_LINE_BYTES."""
    most = MOST_LINE_BYTES
    held: list[bytes] = []
    length = 0
    for block in blocks:
        first, *rest = block.split(b"\n")
        length += len(first)
        held = [*held, first] if length <= most else []
        if rest:
            yield b"".join(held) if length <= most else None
            yield from (line if len(line) <= most else None for line in rest[:-1])
            held, length = [rest[-1]], len(rest[-1])
    if length:
        yield b"".join(held) if length <= most else None


def json_objects(lines: Iterable[bytes | None]) -> Iterator[dict[str, Any]]:
    """Yield the JSON object of each line that holds one."""
    for line in lines:
        try:
            row = json.loads(line or b"null")
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            yield row
