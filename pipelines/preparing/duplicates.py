"""Find the first row of each id with bounded memory.

Ids are in files of raw int64, one per shard, in the order of the input; a row's position is its
index over all files. The result is a file of one byte per row: 1 if the row stays, else 0. Up to
BUCKET_ROWS ids are sorted in memory, more in buckets on disk, 16 bytes per row.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.preparing.buckets import ID_BITS, buckets

# Sorting this many ids takes 0.7 GiB and 3 s.
BUCKET_ROWS = 1 << 24
CHUNK_ROWS = 1 << 20
# The flag of a row that stays; 0 drops it, and pipelines.preparing.hold_out has two more.
KEPT = 1
_TOP_BITS = 16
_ODD = np.int64(0x1E3779B97F4A7C15)


def mark_first(
    files: Sequence[Path], keep: Path, scratch: Path, bucket_rows: int = BUCKET_ROWS
) -> int:
    """Write `keep`: 1 for the first row of each id in the order of `files`, 0 for other rows.

    Returns the number of rows with 1. scratch: folder for the temporary buckets.
    """
    total = sum(file.stat().st_size for file in files) // 8
    flags = create(keep, total)
    if total <= bucket_rows:
        together = np.empty(total, np.int64)
        for start, ids in chunks(files):
            together[start : start + len(ids)] = ids
        return _mark(together, None, flags)
    kept = 0
    for records in buckets(_first_of_chunks(files), total, scratch, bucket_rows):
        kept += _mark(np.ascontiguousarray(records[:, 0]), records[:, 1], flags)
    return kept


def _mark(ids: np.ndarray, positions: np.ndarray | None, flags: np.ndarray) -> int:
    """Set the flag of each id's first row; ids are sorted by position."""
    _, first = np.unique(ids, return_index=True)
    flags[first if positions is None else np.sort(positions[first])] = 1
    flush(flags)
    return len(first)


def _first_of_chunks(files: Sequence[Path]) -> Iterator[np.ndarray]:
    """Yield (id, position) of the first row of each id in a chunk: a very frequent line fills no
    bucket."""
    for start, chunk in chunks(files):
        ids, first = np.unique(chunk, return_index=True)
        yield np.stack([ids, first + start], axis=1)


def keep_smallest(files: Sequence[Path], keep: Path, count: int) -> int:
    """Keep only the first `count` of the kept rows in `sample_order`; their ids are distinct.

    Returns the number of kept rows. Reads the ids three times: to find the 1/65,536 of their range
    that contains the last id to keep, to find that id, and to clear the rows beyond it.
    """
    if not keep.stat().st_size:
        return 0
    flags = np.memmap(keep, np.uint8, "r+")
    shift = ID_BITS - _TOP_BITS
    histogram = np.zeros(1 << _TOP_BITS, np.int64)
    for start, ids in _sample_chunks(files):
        kept = ids[flags[start : start + len(ids)] == 1]
        histogram += np.bincount(kept >> shift, minlength=len(histogram))
    upto = np.cumsum(histogram)
    if upto[-1] <= count:
        return int(upto[-1])
    last = int(np.searchsorted(upto, count))
    among = []
    for start, ids in _sample_chunks(files):
        among.append(ids[(flags[start : start + len(ids)] == 1) & (ids >> shift == last)])
    rank = count - int(upto[last] - histogram[last]) - 1
    largest = np.partition(np.concatenate(among), rank)[rank]
    for start, ids in _sample_chunks(files):
        flags[start : start + len(ids)][ids > largest] = 0
    flush(flags)
    return count


def sample_order(ids: np.ndarray) -> np.ndarray:
    """Return distinct 63-bit numbers for distinct ids; the smallest are those of a sample.

    Their order is not that of the ids, because held-out documents have the smallest ids: a sample
    would contain every document that another corpus of the same input holds out.
    """
    order: np.ndarray = ids * _ODD & ((1 << ID_BITS) - 1)
    return order


def _sample_chunks(files: Sequence[Path]) -> Iterator[tuple[int, np.ndarray]]:
    return ((start, sample_order(ids)) for start, ids in chunks(files))


def flush(flags: np.ndarray) -> None:
    """Write a memory-mapped array to its file, which workers on other nodes read."""
    if isinstance(flags, np.memmap):
        flags.flush()


def chunks(files: Sequence[Path], kind: Any = np.int64) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (position of the first row, up to CHUNK_ROWS rows) over all files of a numpy type."""
    start = 0
    for path in files:
        with path.open("rb") as file:
            while len(rows := np.fromfile(file, kind, CHUNK_ROWS)):
                yield start, rows
                start += len(rows)


def create(keep: Path, rows: int) -> np.ndarray:
    """Create a file of `rows` zero bytes and return it mapped for writing.

    Raises OSError if the disk is too full: writing to the map would then kill the process.
    """
    with keep.open("wb") as file:
        file.truncate(rows)
        if rows and hasattr(os, "posix_fallocate"):  # macOS has none
            os.posix_fallocate(file.fileno(), 0, rows)
    flags: np.ndarray = np.memmap(keep, np.uint8, "r+") if rows else np.empty(0, np.uint8)
    return flags


def kept(keep: Path, start: int, stop: int) -> np.ndarray:
    """Return (stop - start,) bool: whether each row from `start` to `stop` stays."""
    stays: np.ndarray = read_flags(keep, start, stop) == KEPT
    return stays


def read_flags(keep: Path, start: int, stop: int) -> np.ndarray:
    """Return (stop - start,) uint8, the flags of the rows from `start` to `stop`."""
    return np.fromfile(keep, np.uint8, stop - start, offset=start)
