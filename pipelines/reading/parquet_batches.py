"""Read Parquet in batches of bounded size in memory, without trusting the file's metadata.

The number of rows in a batch is computed from the page headers (parquet_pages), which cannot
understate the size of the values. A column whose dictionary has long texts stays a dictionary, so
each text is in memory once, not once per row.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cotbert_core.errors import UserError
from pipelines.reading import locations
from pipelines.reading.parquet_pages import (
    DELTA_BYTE_ARRAY,
    DICTIONARY_ENCODINGS,
    DICTIONARY_PAGE,
    Page,
    longest_entry,
    pages,
)

# Approximate bytes of a column's decoded values in a batch: 8,192 rows of 8 kB. A batch may also
# extend into two pages that it does not fill.
BATCH_BYTES = 64 << 20
# Maximum bytes of a page, which is held whole. Writers make pages of about 1 MiB, but pyarrow puts
# at least 1,024 rows into one, which are 0.4 GB for books of 400 kB.
PAGE_BYTES = 512 << 20
# Maximum number of list values in a row group of a passed-through column, counting pages in which
# few bytes encode many values: 1 GiB as 8-byte numbers, if they were all in one row.
LIST_VALUES = 1 << 27
# Maximum bytes of `read_table`, the limit of a pyarrow array of texts, and rows of its batches.
TABLE_BYTES, TABLE_ROWS = (2 << 30) - 1, 8192
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}


@dataclass(frozen=True)
class Bound:
    """The maximum number of rows of a column in a batch, and whether it must stay a dictionary."""

    rows: int
    as_dictionary: bool = False


def batches(
    name: str, groups: Sequence[int], columns: Sequence[str], rows: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the row groups, at most `rows` at a time, fewer if they are large.

    Raises UserError for a page that is too large, and pyarrow's errors for a damaged file.
    """
    for group in groups:
        raw = locations.open_file(name)
        metadata = pq.ParquetFile(raw).metadata
        if locations.is_uri(name):
            raw = _fetched(raw, metadata, group, columns)
        bounds = _bounds(name, raw, metadata, group, columns, rows)
        dictionaries = [column for column, bound in bounds.items() if bound.as_dictionary]
        source = pa.PythonFile(raw, "r") if isinstance(raw, _Spans) else raw
        file = pq.ParquetFile(source, metadata=metadata, read_dictionary=dictionaries)
        most = min([rows, *(bound.rows for bound in bounds.values())])
        yield from file.iter_batches(most, row_groups=[group], columns=list(columns))


def split(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield slices of a batch of a mapped file, each at most BATCH_BYTES or a single row."""
    if len(batch) < 2 or batch.nbytes <= BATCH_BYTES:
        yield batch
    else:
        half = len(batch) // 2
        yield from split(batch.slice(0, half))
        yield from split(batch.slice(half))


def decoded(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a batch with dictionaries of texts decoded, about BATCH_BYTES at a time."""
    places = [n for n, kind in enumerate(batch.schema.types) if pa.types.is_dictionary(kind)]
    sizes = np.zeros(len(batch), np.int64)
    for place in places:
        column = batch.column(place)
        lengths = pc.binary_length(column.dictionary).fill_null(0).to_numpy(zero_copy_only=False)
        indices = column.indices.fill_null(0).to_numpy(zero_copy_only=False)
        sizes += lengths[indices] if len(lengths) else 0
    parts = np.cumsum(sizes) // BATCH_BYTES
    starts = [0, *(np.flatnonzero(np.diff(parts)) + 1).tolist(), len(batch)]
    for start, stop in pairwise(starts):
        part = batch.slice(start, stop - start)
        for place in places:
            text = part.column(place).dictionary_decode()
            part = part.set_column(place, part.schema.names[place], text)
        yield part


def read_table(path: Path, columns: Sequence[str]) -> pa.Table:
    """Return columns of a whole file; UserError if they take more than TABLE_BYTES."""
    file = pq.ParquetFile(path)
    tables, size = [], 0
    for batch in batches(str(path), range(file.num_row_groups), columns, TABLE_ROWS):
        for part in decoded(batch):
            tables.append(pa.Table.from_batches([part]))
            size += part.nbytes
            if size > TABLE_BYTES:
                raise UserError(
                    f"{str(path)!r} has more than {TABLE_BYTES:,} bytes of "
                    f"{', '.join(columns)}, which must fit in memory: prepare the corpus again "
                    "with shorter texts"
                )
    return pa.concat_tables(tables or [file.schema_arrow.empty_table().select(list(columns))])


def _bounds(
    name: str, file: Any, metadata: Any, group: int, columns: Sequence[str], rows: int
) -> dict[str, Bound]:
    """Return the bound of every leaf of the columns by its path (a plain column is one leaf)."""
    chunks = metadata.row_group(group)
    bounds = {}
    for number, path in _leaves(metadata, columns):
        chunk = chunks.column(number)
        found = []
        for page in pages(file, chunk):
            if max(page.size, page.stored) > PAGE_BYTES:
                raise UserError(
                    f"input {name!r} has a page of {page.size:,} bytes in column {path!r}, and "
                    f"pages may have at most {PAGE_BYTES:,}: write the file again with smaller "
                    "pages"
                )
            found.append(page)
        leaf = metadata.schema.column(number)
        if leaf.max_repetition_level:
            bounds[path] = _list_bound(name, file, chunk, found, leaf, chunks.num_rows)
        else:
            bounds[path] = _bound(file, chunk, found, leaf, rows)
    return bounds


def _leaves(metadata: Any, columns: Sequence[str]) -> Iterator[tuple[int, str]]:
    for number in range(metadata.num_columns):
        path = metadata.schema.column(number).path
        if any(path == column or path.startswith(f"{column}.") for column in columns):
            yield number, path


def _bound(file: Any, chunk: Any, found: Sequence[Page], leaf: Any, rows: int) -> Bound:
    """Return the bound of a column with one value per row."""
    longest, delta, most = _longest(file, chunk, found, leaf, rows), False, rows
    for page in found:
        if page.encoding == DELTA_BYTE_ARRAY:  # every value may be as long as the page
            delta, most = True, min(most, BATCH_BYTES // max(1, page.size))
        elif page.kind != DICTIONARY_PAGE and page.encoding not in DICTIONARY_ENCODINGS:
            most = min(most, BATCH_BYTES * max(1, page.values) // max(1, page.size))
    if longest * rows > BATCH_BYTES:
        # pyarrow 25 cannot read DELTA_BYTE_ARRAY into a dictionary.
        if chunk.physical_type == "BYTE_ARRAY" and not delta and "." not in leaf.path:
            return Bound(max(1, most), as_dictionary=True)
        most = min(most, BATCH_BYTES // longest)
    return Bound(max(1, most))


def _list_bound(
    name: str, file: Any, chunk: Any, found: Sequence[Page], leaf: Any, rows: int
) -> Bound:
    """Return the bound of a column of lists, from the average size of its rows."""
    longest = max(1, _longest(file, chunk, found, leaf, 1))
    data = [page for page in found if page.kind != DICTIONARY_PAGE]
    short = sum(page.values for page in data if page.values > page.size)
    if short > LIST_VALUES:
        raise UserError(
            f"input {name!r} has {short:,} list values in few bytes in a row group of column "
            f"{leaf.path!r}, and at most {LIST_VALUES:,} are allowed: leave it out of --keep, or "
            "write the file again with smaller row groups"
        )
    size = sum(max(page.size, page.values * longest) for page in data)
    return Bound(max(1, BATCH_BYTES * max(1, rows) // max(1, size)))


def _longest(file: Any, chunk: Any, found: Sequence[Page], leaf: Any, rows: int) -> int:
    """Return the size in bytes of the longest value of a dictionary or fixed-width type."""
    if chunk.physical_type == "FIXED_LEN_BYTE_ARRAY":
        return max(1, int(leaf.length))
    if chunk.physical_type != "BYTE_ARRAY":
        return _WIDTHS.get(chunk.physical_type, 16)
    dictionaries = [page for page in found if page.kind == DICTIONARY_PAGE]
    largest = max((page.size for page in dictionaries), default=0)
    if largest * rows <= BATCH_BYTES:  # small enough whatever it contains
        return largest
    return max(longest_entry(file, page, chunk.compression) for page in dictionaries)


class _Spans(io.RawIOBase):
    """A file in a bucket, with some spans fetched in one request each.

    The spans are then read twice from memory: for the page headers and for the pages.
    """

    def __init__(self, raw: Any, spans: dict[int, bytes]) -> None:
        self._raw, self._spans, self._place = raw, spans, 0

    def read_at(self, size: int, place: int) -> bytes:
        for start, data in self._spans.items():
            if start <= place < start + len(data):
                return data[place - start : place - start + size]
        return bytes(self._raw.read_at(size, place))

    def read(self, size: int | None = -1) -> bytes:
        left = self.size() - self._place
        data = self.read_at(left if size is None or size < 0 else min(size, left), self._place)
        self._place += len(data)
        return data

    def seek(self, place: int, whence: int = 0) -> int:
        self._place = place + (0, self._place, self.size())[whence]
        return self._place

    def tell(self) -> int:
        return self._place

    def size(self) -> int:
        return int(self._raw.size())

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


def _fetched(raw: Any, metadata: Any, group: int, columns: Sequence[str]) -> _Spans:
    spans = {}
    for number, _ in _leaves(metadata, columns):
        chunk = metadata.row_group(group).column(number)
        starts = [chunk.data_page_offset, chunk.dictionary_page_offset or 0]
        start = min(start for start in starts if start > 0)
        spans[start] = bytes(raw.read_at(chunk.total_compressed_size, start))
    return _Spans(raw, spans)
