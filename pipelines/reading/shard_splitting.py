"""Split a file into shards, parts that one task reads, after checking the file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from cotbert_core.errors import UserError
from pipelines.reading import docstrings, hub_datasets, locations
from pipelines.reading.bad_rows import Unusable
from pipelines.reading.columns import (
    COLUMN_OPTIONS,
    ID_OPTION,
    check_columns,
    check_json_columns,
    check_types,
    header,
)
from pipelines.reading.content_checks import (
    begins_with_json,
    check_compression,
    check_content,
    has_markup,
)
from pipelines.reading.delimited import delimited_rows
from pipelines.reading.documents import PARAGRAPH
from pipelines.reading.encodings import HEAD_BYTES, can_be_cut, check_encoding, looks_like_utf8
from pipelines.reading.formats import DELIMITERS, OF_LINES, WITH_COLUMNS, kind_of
from pipelines.reading.ids import text_id_in_lines, text_id_in_rows
from pipelines.reading.line_reader import file_lines
from pipelines.reading.read_plan import ReadPlan, Shard
from pipelines.reading.wrapped_lines import looks_wrapped


def split_file(name: str, first_row: int, plan: ReadPlan, size: int) -> Iterator[Shard]:
    """Yield the shards of one file after checking its encoding and its columns.

    size: size in bytes of a shard of a file of lines.
    """
    kind = kind_of(name) or ""
    for column, option in (
        (next(iter(plan.keep), None), plan.keep_option),
        (plan.id_column, ID_OPTION),
        (next(iter(plan.paired_columns), None), COLUMN_OPTIONS[1]),
    ):
        if column and kind not in WITH_COLUMNS:
            raise UserError(
                f"input {name!r} has no columns and so no {column!r} for {option}: give csv, tsv, "
                "jsonl or parquet"
            )
    if kind == "docstrings":
        yield from _docstring_shards(name, first_row)
    elif kind == "hub":
        yield from _hub_shards(name, first_row, plan)
    elif kind == "parquet":
        yield from _parquet_shards(name, first_row, plan)
    else:
        yield from _text_shards(name, kind, first_row, plan, size)


def _text_shards(
    name: str, kind: str, first_row: int, plan: ReadPlan, size: int
) -> Iterator[Shard]:
    """Yield the shards of a local file of lines; any other text file is a single shard.

    In a compressed or remote file a line's offset is only found by reading from the beginning, and
    in a csv file a line break may be inside a row.
    """
    head = _head(name)
    check_content(name, head)
    check_encoding(name, head, plan.encoding)
    is_txt = kind == "txt"
    one_line = b"\r" in head.strip() and b"\n" not in head
    found = {
        "markup": has_markup(head),
        "json": is_txt and begins_with_json(head),
        "wrapped": is_txt and not plan.wrapped and looks_wrapped(head),
        "carriage_returns": kind not in DELIMITERS and one_line,
        "utf8": looks_like_utf8(head, plan.encoding),
    }
    for what in filter(found.get, found):
        plan.found.files[what].append(name)
    if kind in DELIMITERS:
        check_columns(name, plan, header(name, plan.delimiter_of(kind), plan.encoding))
    elif kind == "jsonl":
        check_json_columns(name, plan, file_lines(name, encoding=plan.encoding))
    if plan.id_column and (text_id := _text_id(name, kind, plan)):
        plan.found.text_ids[name] = text_id
    whole = locations.suffixes(name)[1] or locations.is_uri(name) or not can_be_cut(plan.encoding)
    if kind not in OF_LINES or whole:
        if head:
            yield Shard(name, kind, first_row=first_row)
    else:
        wrapped = plan.wrapped and kind == "txt"
        paragraphs = wrapped or plan.documents == PARAGRAPH
        for shard in _line_shards(Path(name), kind, first_row, size, paragraphs):
            yield replace(shard, rows=None) if wrapped else shard


def _head(name: str) -> bytes:
    """Return the first bytes of a file, decompressed; UserError if its suffix is wrong."""
    try:
        with locations.open_stream(name) as stream:
            return bytes(stream.read(HEAD_BYTES))
    except OSError:
        check_compression(name)
        raise


def _text_id(name: str, kind: str, plan: ReadPlan) -> str | None:
    """Return an id in a file's first rows that is not a whole number, or None."""
    column = str(plan.id_column)
    if kind not in DELIMITERS:
        return text_id_in_lines(file_lines(name, encoding=plan.encoding), column)
    rows = delimited_rows(name, plan.delimiter_of(kind), plan.encoding)
    place = list(next(rows)).index(column)
    return text_id_in_rows((row for row in rows if not isinstance(row, Unusable)), place)


def _hub_shards(name: str, first_row: int, plan: ReadPlan) -> Iterator[Shard]:
    rows, schema, files = hub_datasets.describe(name)
    check_columns(name, plan, schema.names)
    check_types(name, plan, schema)
    for start in range(0, rows, hub_datasets.SHARD_ROWS):
        stop = min(start + hub_datasets.SHARD_ROWS, rows)
        yield Shard(name, "hub", start, stop, first_row + start, files, stop - start)


def _docstring_shards(item: str, first_row: int) -> Iterator[Shard]:
    """Yield a shard for every 100 source files, which take about a second to parse."""
    packages = [p for p in item.removeprefix(docstrings.PREFIX).split(",") if p]
    if not packages:
        raise UserError(f"input {item!r} names no package: write docstrings:PACKAGE,...")
    files = [str(f) for f in docstrings.package_files(packages)]
    for start in range(0, len(files), 100):
        some = tuple(files[start : start + 100])
        yield Shard(item, "docstrings", first_row=first_row + (start << 20), files=some)


def _line_shards(
    path: Path, kind: str, first_row: int, size: int, paragraphs: bool
) -> Iterator[Shard]:
    """Yield shards of whole lines. paragraphs: end a shard only after a blank line."""
    start = 0
    with path.open("rb") as lines:
        while chunk := lines.read(size):
            length, breaks = len(chunk), chunk.count(b"\n")
            while not chunk.endswith(b"\n") and (chunk := lines.readline(size)):
                length += len(chunk)  # in chunks, since a line may be as long as the file
                breaks += chunk.endswith(b"\n")
            if paragraphs:
                for chunk in _rest_of_paragraph(lines, size):
                    length += len(chunk)
                    breaks += chunk.endswith(b"\n")
            rows = breaks + (not chunk.endswith(b"\n"))
            yield Shard(str(path), kind, start, start + length, first_row, rows=rows)
            start += length
            first_row += breaks


def _rest_of_paragraph(lines: IO[bytes], size: int) -> Iterator[bytes]:
    """Yield the lines up to the next blank one, long lines in pieces of `size` bytes."""
    begins = True
    while line := lines.readline(size):
        yield line
        ends = line.endswith(b"\n")
        if begins and ends and not line.strip():
            return
        begins = ends


def _parquet_shards(name: str, first_row: int, plan: ReadPlan) -> Iterator[Shard]:
    try:
        parquet = pq.ParquetFile(locations.open_file(name))
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, PermissionError):
            raise
        raise UserError(
            f"input {name!r} is not a whole Parquet file ({error}): copy it again"
        ) from None
    schema = parquet.schema_arrow
    check_columns(name, plan, schema.names)
    check_types(name, plan, schema)
    for group in range(parquet.num_row_groups):
        rows = parquet.metadata.row_group(group).num_rows
        yield Shard(name, "parquet", group, group + 1, first_row, rows=rows)
        first_row += rows
