"""Find rows with nearly the same text by MinHash and locality-sensitive hashing.

A row is compared as the set of its case-folded character 5-grams. Words would be too coarse: a
changed word in twenty leaves 0.71 of a sentence's word trigrams and 0.83 of its character 5-grams,
and not all scripts separate words. HASHES minima of hashed 5-grams estimate the Jaccard similarity
of two sets to within 0.04 (Broder 1997). Rows whose minima agree in a band are candidates.
Candidates whose estimate reaches the threshold are merged into clusters, and the row with the
smallest id of each cluster stays.

A shard's scratch file NNNNNN.near has, for each row, one byte of each minimum, which is enough for
the comparison (Li and König 2010), and the hashes of its bands. Candidates are found band by band
like duplicates, by sorting, in buckets on disk if there are many rows. Only the pairs of near
duplicates are held in memory, 16 bytes each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from pipelines.preparing.buckets import ID_BITS, buckets
from pipelines.preparing.duplicates import CHUNK_ROWS

GRAM, HASHES = 5, 128
# The first MOST_LETTERS letters of a text are compared; TOGETHER rows are hashed at a time.
MOST_LETTERS, TOGETHER = 10_000, 1024
_PRIME = np.uint64(0x100000001B3)
_MIX = np.uint64(0x9E3779B97F4A7C15)
# The probability that one byte of two different minima is equal.
_BY_CHANCE = 1 / 256
_PAIRS = 1 << 18  # pairs compared at a time: 64 MiB of minima


def band_rows(similarity: float) -> int:
    """Return the number of minima per band: 6 (21 bands) for a similarity of 0.8, 3 for 0.5.

    It is the largest with which a pair of this similarity is a candidate with probability 0.99.
    """
    chances = {rows: 1 - (1 - similarity**rows) ** (HASHES // rows) for rows in range(1, HASHES)}
    return max((rows for rows, chance in chances.items() if chance >= 0.99), default=1)


def row_type(rows: int) -> np.dtype:
    """Return the numpy type of a row in a shard's file. rows: number of minima per band."""
    return np.dtype([("minima", np.uint8, HASHES), ("bands", np.int64, HASHES // rows)])


def signatures(texts: Sequence[str], rows: int) -> np.ndarray:
    """Return the (N,) signatures of N texts, of `row_type(rows)`."""
    made = np.empty(len(texts), row_type(rows))
    for start in range(0, len(texts), TOGETHER):
        minima = _minima([text[:MOST_LETTERS] for text in texts[start : start + TOGETHER]])
        into = made[start : start + TOGETHER]
        into["minima"] = minima * _MIX >> np.uint64(56)
        bands = minima[:, : HASHES // rows * rows].reshape(len(minima), -1, rows)
        hashes = np.zeros(bands.shape[:2], np.uint64)
        for number in range(rows):
            hashes = _mixed((hashes + bands[:, :, number]) * _PRIME)
        into["bands"] = hashes >> np.uint64(64 - ID_BITS)
    return made


def _minima(texts: Sequence[str]) -> np.ndarray:
    """Return (N, HASHES) uint64: each text's smallest 5-gram hash under each hash function."""
    grams, starts = _grams(texts)
    draws = np.random.default_rng(0).integers(0, 2**63, HASHES, np.uint64)
    minima = np.empty((len(texts), HASHES), np.uint64)
    for number, multiplier in enumerate(draws * np.uint64(2) + np.uint64(1)):
        minima[:, number] = np.minimum.reduceat(_mixed(grams * multiplier), starts)
    return minima


def _grams(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the uint64 hashes of the 5-grams of all texts, and the index of each text's first.

    A text of L letters has L 5-grams, the last ones padded.
    """
    folded = [text.casefold() for text in texts]
    lengths = np.fromiter(map(len, folded), np.int64, len(folded))
    padded = ("\0" * (GRAM - 1)).join([*folded, ""])
    letters = np.frombuffer(padded.encode("utf-32-le"), np.uint32).astype(np.uint64)
    count = len(letters) - (GRAM - 1)
    grams = np.zeros(max(count, 0), np.uint64)
    for offset in range(GRAM):
        grams = grams * _PRIME + letters[offset : offset + count]
    begin = np.cumsum(lengths + GRAM - 1) - (lengths + GRAM - 1)
    within = np.arange(len(letters)) - np.repeat(begin, lengths + GRAM - 1)
    valid = within < np.repeat(lengths, lengths + GRAM - 1)
    return _mixed(grams[valid[:count]]), np.cumsum(lengths) - lengths


def _mixed(values: np.ndarray) -> np.ndarray:
    """Return values with their bits mixed by the finalizer of MurmurHash3."""
    values = (values ^ (values >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    mixed: np.ndarray = values ^ (values >> np.uint64(33))
    return mixed


def estimate(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return (N,) estimated Jaccard similarities from (N, HASHES) bytes of minima each."""
    equal = (one == other).mean(axis=1)
    return np.asarray((equal - _BY_CHANCE) / (1 - _BY_CHANCE))


class NearDuplicates:
    """The search over all shards. ids, near: files by shard. keep: file with a byte per row."""

    def __init__(
        self, ids: Sequence[Path], near: Sequence[Path], keep: Path, similarity: float
    ) -> None:
        self._ids, self._near, self._similarity = ids, near, similarity
        self._rows = band_rows(similarity)
        sizes = [path.stat().st_size // 8 for path in ids]
        self._starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        self._flags = np.memmap(keep, np.uint8, "r+")

    def drop(self, scratch: Path) -> int:
        """Drop all rows except the smallest id of each cluster, and return their number."""
        # Here, since every worker of `cotbert prepare` imports this module.
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        edges = [self._edges(band, scratch) for band in range(HASHES // self._rows)]
        pairs = np.unique(np.concatenate(edges), axis=0)
        if not len(pairs):
            return 0
        rows, places = np.unique(pairs, return_inverse=True)
        joined = places.reshape(-1, 2)
        graph = coo_array((np.ones(len(joined)), joined.T), shape=(len(rows), len(rows)))
        _, label = connected_components(graph, directed=False)
        ids = self._values(rows, lambda shard: np.memmap(self._ids[shard], np.int64, "r"))
        smallest_first = np.lexsort((ids, label))
        _, first = np.unique(label[smallest_first], return_index=True)
        dropped = np.delete(rows, smallest_first[first])
        self._flags[dropped] = 0
        self._flags.flush()
        return len(dropped)

    def _edges(self, band: int, scratch: Path) -> np.ndarray:
        """Return (E, 2) positions of near duplicates among the rows that agree in this band.

        Each row is compared with the row with the smallest id and with the row before it.
        """
        found, total = [np.empty((0, 2), np.int64)], int(self._starts[-1])
        for rows in buckets(self._rows_of(band), total, scratch):
            hashes, ids, positions = rows.T
            order = np.lexsort((ids, hashes))
            hashes, positions = hashes[order], positions[order]
            again = np.flatnonzero(hashes[1:] == hashes[:-1]) + 1
            _, first, group = np.unique(hashes, return_index=True, return_inverse=True)
            pairs = np.concatenate([
                np.stack([positions[first[group[again]]], positions[again]], axis=1),
                np.stack([positions[again - 1], positions[again]], axis=1),
            ])  # fmt: skip
            pairs = np.unique(np.sort(pairs, axis=1), axis=0)
            for start in range(0, len(pairs), _PAIRS):
                some = pairs[start : start + _PAIRS]
                near = estimate(*(self._minima_of(column) for column in some.T))
                found.append(some[near >= self._similarity])
        return np.concatenate(found)

    def _rows_of(self, band: int) -> Iterator[np.ndarray]:
        """Yield (hash, id, position) of the rows that stay, CHUNK_ROWS of a shard at a time."""
        for shard, (ids, near) in enumerate(zip(self._ids, self._near, strict=True)):
            count = int(self._starts[shard + 1] - self._starts[shard])
            for start in range(0, count, CHUNK_ROWS):
                stop = min(start + CHUNK_ROWS, count)
                position = int(self._starts[shard]) + start
                stays = np.flatnonzero(self._flags[position : position + stop - start])
                hashes = np.memmap(near, row_type(self._rows), "r")["bands"][start:stop, band]
                values = np.memmap(ids, np.int64, "r")[start:stop]
                yield np.stack([hashes[stays], values[stays], stays + position], axis=1)

    def _minima_of(self, positions: np.ndarray) -> np.ndarray:
        """Return (N, HASHES) bytes of the minima of the rows at these positions."""
        kind = row_type(self._rows)
        return self._values(positions, lambda n: np.memmap(self._near[n], kind, "r")["minima"])

    def _values(self, positions: np.ndarray, of_shard: Callable[[int], np.ndarray]) -> np.ndarray:
        """Return the values of the rows at these positions. of_shard: returns a shard's values."""
        shards = np.searchsorted(self._starts, positions, side="right") - 1
        order = np.argsort(shards, kind="stable")
        found = []
        for chosen in np.split(order, np.flatnonzero(np.diff(shards[order])) + 1):
            shard = int(shards[chosen[0]])
            found.append(of_shard(shard)[positions[chosen] - self._starts[shard]])
        return np.asarray(np.concatenate(found)[np.argsort(order)])
