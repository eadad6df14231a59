"""Where text comes from: files, folders, globs and docstrings, cut into shards.

Everything a user can get wrong (a missing path or column, a Parquet file cut short) is found by
`plan` on the driver; what is wrong with single rows is found by `pipelines.readers`.
"""

from __future__ import annotations

import csv
import glob
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from cotbert_core.errors import UserError
from pipelines import docstrings

KINDS = {
    ".txt": "txt",
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}
DOCSTRINGS = "docstrings:"
DELIMITERS = {"csv": ",", "tsv": "\t"}
# Row r of file f has the number f * 2^40 + r, unique and the same on every run.
FILE_BITS = 40


@dataclass(frozen=True)
class Shard:
    """A piece of one file. start, stop: bytes of a line file, row groups of a Parquet file."""

    path: str
    kind: str
    start: int = 0
    stop: int = 0
    first_row: int = 0
    files: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """What will be read. ignored: files of unknown kind found in folders."""

    shards: list[Shard]
    files: list[str]
    ignored: int
    text_column: str
    id_column: str | None = None


def plan(
    inputs: Sequence[str],
    text_column: str = "text",
    id_column: str | None = None,
    shard_bytes: int = 4 << 20,
) -> Plan:
    """Find the files, check them and cut them into shards; UserError for what is wrong."""
    files: dict[str, None] = {}
    ignored = 0
    for item in inputs:
        found, skipped = ([item], 0) if item.startswith(DOCSTRINGS) else _expand(item)
        files |= dict.fromkeys(found)
        ignored += skipped
    columns = [text_column, *([id_column] if id_column else [])]
    shards: list[Shard] = []
    for number, name in enumerate(files):
        first_row = number << FILE_BITS
        if name.startswith(DOCSTRINGS):
            shards += _docstring_shards(name, first_row)
            continue
        try:
            shards += _file_shards(Path(name), first_row, columns, shard_bytes)
        except OSError as error:
            raise UserError(
                f"input {name!r} cannot be read ({error.strerror or error}): mend its rights or "
                "leave it out"
            ) from None
    return Plan(shards, list(files), ignored, text_column, id_column)


def _expand(item: str) -> tuple[list[str], int]:
    """The files that a path, folder or glob names, sorted, and how many were of unknown kind."""
    path = Path(item).expanduser().absolute()
    if path.is_file():
        if path.suffix.lower() not in KINDS:
            raise UserError(
                f"input {item!r} ends in {path.suffix!r}: give one of {', '.join(KINDS)}"
            )
        return [str(path)], 0
    if path.is_dir():
        found = sorted(p for p in path.rglob("*") if p.is_file())
    else:
        found = sorted(Path(p) for p in glob.glob(str(path), recursive=True) if Path(p).is_file())
    known = [str(p) for p in found if p.suffix.lower() in KINDS]
    if not known:
        what = "holds no file" if path.is_dir() else "does not exist or matches no file"
        raise UserError(f"input {item!r} {what} of a known kind: {', '.join(KINDS)}")
    return known, len(found) - len(known)


def _docstring_shards(item: str, first_row: int) -> list[Shard]:
    """One shard for every 100 source files: about a second of parsing."""
    packages = [p for p in item.removeprefix(DOCSTRINGS).split(",") if p]
    files = [str(f) for f in docstrings.package_files(packages)]
    return [
        Shard(
            item,
            "docstrings",
            first_row=first_row + (start << 20),
            files=tuple(files[start : start + 100]),
        )
        for start in range(0, len(files), 100)
    ]


def _file_shards(path: Path, first_row: int, columns: list[str], size: int) -> Iterator[Shard]:
    kind = KINDS[path.suffix.lower()]
    if kind == "parquet":
        yield from _parquet_shards(path, first_row, columns)
    elif kind in DELIMITERS:
        _check_header(path, DELIMITERS[kind], columns)
        yield Shard(str(path), kind, first_row=first_row)
    else:
        yield from _line_shards(path, kind, first_row, size)


def _line_shards(path: Path, kind: str, first_row: int, size: int) -> Iterator[Shard]:
    start = 0
    with path.open("rb") as lines:
        while chunk := lines.read(size):
            chunk += lines.readline()
            yield Shard(str(path), kind, start, start + len(chunk), first_row)
            start += len(chunk)
            first_row += chunk.count(b"\n")


def _parquet_shards(path: Path, first_row: int, columns: list[str]) -> Iterator[Shard]:
    try:
        parquet = pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise UserError(
            f"input {str(path)!r} is not a whole Parquet file ({error}): copy it again"
        ) from None
    schema = parquet.schema_arrow
    _check_columns(path, columns, schema.names)
    kind = schema.field(columns[0]).type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise UserError(f"{str(path)!r}, column {columns[0]!r} is of type {kind}: it must be text")
    if len(columns) > 1 and not pa.types.is_integer(schema.field(columns[1]).type):
        raise UserError(f"{str(path)!r}, column {columns[1]!r} must hold whole numbers")
    for group in range(parquet.num_row_groups):
        yield Shard(str(path), "parquet", group, group + 1, first_row)
        first_row += parquet.metadata.row_group(group).num_rows


def _check_header(path: Path, delimiter: str, columns: list[str]) -> None:
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as lines:
        try:
            header = next(csv.reader(lines, delimiter=delimiter), [])
        except csv.Error as error:
            raise UserError(
                f"the first line of {str(path)!r} names no columns ({error}): mend it"
            ) from None
    _check_columns(path, columns, header)


def _check_columns(path: Path, wanted: list[str], found: Sequence[str]) -> None:
    missing = [c for c in wanted if c not in found]
    if missing:
        raise UserError(
            f"{str(path)!r} has no column {missing[0]!r}: it has {', '.join(found) or 'none'}; "
            "name one with --text-column (--id-column)"
        )


def all_have_integers(plan: Plan, column: str) -> bool:
    """Whether all files are Parquet and have this column of whole numbers."""
    if not all(file.lower().endswith(".parquet") for file in plan.files):
        return False
    schemas = [pq.read_schema(file) for file in plan.files]
    return all(column in s.names and pa.types.is_integer(s.field(column).type) for s in schemas)
