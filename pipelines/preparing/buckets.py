"""Group records by key with bounded memory.

A record is a row of int64 that begins with its key, a 63-bit hash. Many records are partitioned
into buckets on disk by the top bits of their keys: buckets are ordered by key, all records of a key
are in one bucket, and buckets have about equal sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

# Records per bucket: with five numbers each, sorting one takes 0.2 GiB.
BUCKET_RECORDS = 1 << 22
# Maximum number of open buckets; beyond BUCKET_RECORDS * MOST_BUCKETS records they grow.
MOST_BUCKETS = 512
ID_BITS = 63


def buckets(records: Iterable[np.ndarray], most: int, scratch: Path) -> Iterator[np.ndarray]:
    """Yield (N, K) records grouped by key, bucket by bucket in the order of the keys.

    most: upper bound on the number of records. scratch: folder for the temporary buckets.
    """
    if most <= BUCKET_RECORDS:
        together = list(records)
        if any(map(len, together)):
            yield np.concatenate(together)
        return
    bits = min(int(np.ceil(np.log2(most / BUCKET_RECORDS))), MOST_BUCKETS.bit_length() - 1)
    paths = [scratch / f"records-{number:03}" for number in range(1 << bits)]
    columns = _distribute(records, paths, ID_BITS - bits)
    for path in paths:
        found_here = np.fromfile(path, np.int64).reshape(-1, columns)
        path.unlink()
        if len(found_here):
            yield found_here


def _distribute(records: Iterable[np.ndarray], paths: Sequence[Path], shift: int) -> int:
    """Write each record into the bucket of its key's top bits; return the length of a record."""
    edges = np.arange(1, len(paths), dtype=np.int64) << shift
    columns = 1
    with ExitStack() as stack:
        opened = [stack.enter_context(path.open("wb")) for path in paths]
        for some in records:
            columns = some.shape[1]
            ordered = some[np.argsort(some[:, 0], kind="stable")]
            parts = np.split(ordered, np.searchsorted(ordered[:, 0], edges))
            for file, part in zip(opened, parts, strict=True):
                file.write(np.ascontiguousarray(part).tobytes())
    return columns


def count_keys(keys: np.ndarray) -> np.ndarray:
    """Return (key, count) records of an array of keys."""
    return np.stack(np.unique(keys, return_counts=True), axis=1)


def sum_counts(records: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the sorted keys of (key, count) records, and the sum of the counts of each."""
    keys, where = np.unique(records[:, 0], return_inverse=True)
    return keys, np.bincount(where, weights=records[:, 1]).astype(np.int64)


def starts(*sorted_keys: np.ndarray) -> np.ndarray:
    """Return (N,) bool: True where any of the sorted keys differs from the row before."""
    new = np.ones(len(sorted_keys[0]), bool)
    if len(new):
        new[1:] = np.logical_or.reduce([key[1:] != key[:-1] for key in sorted_keys])
    return new


def before_in_group(counts: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """Return (N,) int64, the sum of the counts of the rows before each row in its group.

    begins: (N,) bool, whether a row begins a group.
    """
    before = np.cumsum(counts) - counts
    return np.asarray(before - before[begins][np.cumsum(begins) - 1])
