"""Choose the rows of a corpus with documents: duplicates, boilerplate, samples, positions.

A row's position counts through the files of all shards, as in pipelines.preparing.duplicates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from pipelines.preparing import duplicates
from pipelines.preparing.buckets import before_in_group, buckets, count_keys, starts, sum_counts
from pipelines.preparing.scratch_files import DROPPED, PLACE, place_chunks, shard_file

# A sentence that occurs in this many documents is boilerplate, and is dropped as MANY.
MANY_DOCUMENTS, MANY = 3, "in_many_documents"
# A document with more than this share of all sentences gets a warning, and so does an input with
# more than this share of boilerplate.
GIANT_SHARE, REPEATED_SHARE = 0.5, 0.2


def mark_first(
    ids: Sequence[Path], places: Sequence[Path], keep: Path, scratch: Path
) -> tuple[int, int]:
    """Write `keep`: 1 for the first row of each id, 0 for duplicates and boilerplate sentences.

    Returns the number of rows that stay, and of boilerplate rows.
    """
    total = sum(path.stat().st_size for path in ids) // 8
    flags = duplicates.create(keep, total)
    left = many = 0
    for records in buckets(_sentences(ids, places), total, scratch):
        first, dropped = _first_rows(records)
        flags[first] = duplicates.KEPT
        left += len(first)
        many += dropped
    flags.flush()
    return left, many


def _sentences(ids: Sequence[Path], places: Sequence[Path]) -> Iterator[np.ndarray]:
    """Yield (sentence, document, id, position, rows): the rows of a chunk that share the first
    three, merged into one record."""
    for (start, some), (_, more) in zip(duplicates.chunks(ids), place_chunks(places), strict=True):
        order = np.lexsort((some, more["document"], more["sentence"]))
        sentence, document, row = more["sentence"][order], more["document"][order], some[order]
        first = np.flatnonzero(starts(sentence, document, row))
        rows = np.diff(first, append=len(order))
        columns = (sentence[first], document[first], row[first], order[first] + start, rows)
        yield _without_many(np.stack(columns, axis=1))


def _without_many(records: np.ndarray) -> np.ndarray:
    """Return a chunk's sorted records with at most MANY_DOCUMENTS per sentence.

    The first of a sentence's records counts all its rows, so a line of every document fills no
    bucket.
    """
    sentence, document, rows = records[:, 0], records[:, 1], records[:, 4]
    begins, new = starts(sentence), starts(sentence, document)
    group, rank = np.cumsum(begins) - 1, before_in_group(new, begins)
    many = (np.bincount(group, weights=new) >= MANY_DOCUMENTS)[group]
    total = np.bincount(group, weights=rows).astype(np.int64)[group]
    records[:, 4] = np.where(many, np.where(begins, total, 0), rows)
    kept: np.ndarray = records[~many | (new & (rank < MANY_DOCUMENTS))]
    return kept


def _first_rows(records: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the sorted positions of the rows that stay, and the number of boilerplate rows."""
    records = records[np.lexsort((records[:, 1], records[:, 0]))]
    sentence, document, ids, position, rows = records.T
    begins = starts(sentence)
    group = np.cumsum(begins) - 1
    documents = np.bincount(group, weights=starts(sentence, document))
    many = (documents >= MANY_DOCUMENTS)[group]
    ids, position = ids[~many], position[~many]
    order = np.lexsort((position, ids))
    return np.sort(position[order][starts(ids[order])]), int(rows[many].sum())


def write_offsets(scratch: Path, shards: int) -> None:
    """Write the number of sentences of each document in earlier shards, if it spans shards."""
    found = [n for n in range(shards) if shard_file(scratch, n, "sizes").is_file()]
    sizes = {n: shard_file(scratch, n, "sizes").stat().st_size // 16 for n in found}
    for shard in found:
        duplicates.create(shard_file(scratch, shard, "offsets"), 8 * sizes[shard])
    for records in buckets(_sizes(scratch, found), sum(sizes.values()), scratch):
        document, shard, index, count = records[np.lexsort((records[:, 1], records[:, 0]))].T
        before = before_in_group(count, starts(document))
        for number in np.unique(shard):
            here = shard == number
            offsets = np.memmap(shard_file(scratch, number, "offsets"), np.int64, "r+")
            offsets[index[here]] = before[here]
            offsets.flush()


def _sizes(scratch: Path, shards: Sequence[int]) -> Iterator[np.ndarray]:
    """Yield (document, shard, index in its sizes file, sentences)."""
    for shard in shards:
        sizes = np.fromfile(shard_file(scratch, shard, "sizes"), np.int64)
        documents, counts = sizes.reshape(2, -1)
        index = np.arange(len(documents))
        yield np.stack([documents, np.full(len(index), shard), index, counts], axis=1)


def read_places(scratch: Path, shard: int, start: int, stop: int) -> np.ndarray:
    """Return the PLACE of a shard's rows `start` to `stop`, with positions over all shards."""
    places = np.fromfile(
        shard_file(scratch, shard, "places"), PLACE, stop - start, offset=start * PLACE.itemsize
    )
    sizes, offsets = shard_file(scratch, shard, "sizes"), shard_file(scratch, shard, "offsets")
    if sizes.is_file():
        documents = np.memmap(sizes, np.int64, "r").reshape(2, -1)[0]
        index = np.searchsorted(documents, places["document"])
        places["position"] += np.memmap(offsets, np.int64, "r")[index].astype(np.int32)
    return places


def kept_places(places: Sequence[Path], keep: Path) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield (positions, PLACE) of the rows that stay, in chunks."""
    for start, some in place_chunks(places):
        flags = duplicates.read_flags(keep, start, start + len(some))
        stays = np.flatnonzero(flags == duplicates.KEPT)
        yield stays + start, some[stays]


def document_chunks(places: Sequence[Path]) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (position of the first row, documents of up to CHUNK_ROWS rows) over all files."""
    return ((start, some["document"]) for start, some in place_chunks(places))


def document_sizes(parts: Sequence[Path], scratch: Path) -> Counter[int]:
    """Return the number of documents with 1, 2, ... rows in the parts of a corpus."""
    total = sum(pq.read_metadata(path).num_rows for path in parts)
    sizes: Counter[int] = Counter()
    records = (
        count_keys(batch["document"].to_numpy())
        for path in parts
        for batch in pq.ParquetFile(path).iter_batches(columns=["document"])
    )
    for found in buckets(records, total, scratch):
        numbers, times = np.unique(sum_counts(found)[1], return_counts=True)
        sizes.update(dict(zip(numbers.tolist(), times.tolist(), strict=True)))
    return sizes


def giant_warning(sizes: Counter[int]) -> list[str]:
    """Return a warning if one document holds most of the sentences."""
    sentences = sum(size * number for size, number in sizes.items())
    if max(sizes) <= GIANT_SHARE * sentences:
        return []
    return [
        f"one document has {max(sizes):,} of {sentences:,} sentences: check the value of "
        "--documents, since pairs within one document teach little about the others"
    ]


def many_documents_warning(counts: Counter[str]) -> list[str]:
    """Return a warning if many rows were dropped as boilerplate, as those of copied documents."""
    many, rows = counts[f"{DROPPED}{MANY}"], counts["read"] + counts["added"]
    if many <= REPEATED_SHARE * rows:
        return []
    return [
        f"{many:,} of {rows:,} sentences occur in {MANY_DOCUMENTS} documents or more and were all "
        "dropped: if the input holds copies or versions of documents, give one of each"
    ]
