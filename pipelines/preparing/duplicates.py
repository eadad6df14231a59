"""Find the first row of each id with bounded memory.

Ids are in files of raw int64, one per shard, in the order of the input; a row's position is its
index over all files. The result is a file of one byte per row: 1 if the row stays, else 0. Many ids
are sorted in buckets on disk, 16 bytes per row.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.preparing.buckets import ID_BITS, buckets, count_keys, sum_counts

CHUNK_ROWS = 1 << 20
# The flag of a row that stays; 0 drops it, and pipelines.preparing.hold_out has two more.
KEPT = 1
_ODD = np.int64(0x1E3779B97F4A7C15)


def mark_first(files: Sequence[Path], keep: Path, scratch: Path) -> int:
    """Write `keep`: 1 for the first row of each id in the order of `files`, 0 for other rows.

    Returns the number of rows with 1. scratch: folder for the temporary buckets.
    """
    total = sum(file.stat().st_size for file in files) // 8
    flags = create(keep, total)
    left = 0
    for records in buckets(_first_of_chunks(files), total, scratch):
        _, first = np.unique(records[:, 0], return_index=True)
        flags[np.sort(records[first, 1])] = KEPT
        left += len(first)
    flags.flush()
    return left


def _first_of_chunks(files: Sequence[Path]) -> Iterator[np.ndarray]:
    """Yield (id, position) of the first row of each id in a chunk: a very frequent line fills no
    bucket."""
    for start, chunk in chunks(files):
        ids, first = np.unique(chunk, return_index=True)
        yield np.stack([ids, first + start], axis=1)


def keep_sample(
    keys: Callable[[], Iterator[tuple[int, np.ndarray]]], keep: Path, count: int, scratch: Path
) -> int:
    """Keep only the rows of the first keys in `sample_order` that together have `count` rows.

    keys: returns (position of the first row, the ids or documents of some rows) over all rows.
    Returns the number of rows that stay.
    """
    flags = np.memmap(keep, np.uint8, "r+")
    records = (
        count_keys(sample_order(some[flags[start : start + len(some)] == KEPT]))
        for start, some in keys()
    )
    last = left = 0
    for found in buckets(records, len(flags), scratch):
        sampled, rows = sum_counts(found)
        upto = left + np.cumsum(rows)
        index = min(int(np.searchsorted(upto, count)), len(upto) - 1)
        last, left = int(sampled[index]), int(upto[index])
        if left >= count:
            break
    for path in scratch.glob("records-*"):
        path.unlink()
    for start, some in keys():
        flags[start : start + len(some)][sample_order(some) > last] = 0
    flags.flush()
    return left


def sample_order(ids: np.ndarray) -> np.ndarray:
    """Return distinct 63-bit numbers for distinct ids; the smallest are those of a sample.

    Their order is not that of the ids, because held-out documents have the smallest ids: a sample
    would contain every document that another corpus of the same input holds out.
    """
    order: np.ndarray = ids * _ODD & ((1 << ID_BITS) - 1)
    return order


def chunks(files: Sequence[Path], kind: Any = np.int64) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (position of the first row, up to CHUNK_ROWS rows) over all files of a numpy type."""
    start = 0
    for path in files:
        with path.open("rb") as file:
            while len(rows := np.fromfile(file, kind, CHUNK_ROWS)):
                yield start, rows
                start += len(rows)


def create(keep: Path, rows: int) -> np.memmap:
    """Create a file of `rows` > 0 zero bytes and return it mapped for writing.

    Raises OSError if the disk is too full: writing to the map would then kill the process.
    """
    with keep.open("wb") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, rows)
        else:  # macOS has no such call
            file.write(bytes(rows))
    return np.memmap(keep, np.uint8, "r+")


def read_flags(keep: Path, start: int, stop: int) -> np.ndarray:
    """Return (stop - start,) uint8, the flags of the rows from `start` to `stop`."""
    return np.fromfile(keep, np.uint8, stop - start, offset=start)
