"""Where text comes from: files at any place, docstrings, SICK and data sets, cut into shards.

A row has one text, or companions beside it: one (augmented) or two (augmented, negative), each in
a column of its own, as cotbert_core.batch names them. Everything a user can get wrong (a missing
path or column, a Parquet file cut short) is found by `plan` on the driver; what is wrong with
single rows is found by `pipelines.reading.readers`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from cotbert_core.batch import COLUMNS
from cotbert_core.errors import UserError
from pipelines.reading import docstrings, hub_datasets, locations, sick
from pipelines.reading.delimited import delimited_rows
from pipelines.reading.encodings import HEAD_BYTES, check_encoding
from pipelines.reading.unusable import Unusable

KINDS = {
    ".txt": "txt",
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}
COMPRESSIBLE = ("txt", "csv", "tsv", "jsonl")
ENDINGS = f"{', '.join(KINDS)}, text formats also with {' or '.join(locations.COMPRESSED)}"
DOCSTRINGS = "docstrings:"
DELIMITERS = {"csv": ",", "tsv": "\t"}
# Sentence, entailment and contradiction in SimCSE's nli_for_simcse.csv.
TRIPLES = ("sent0", "sent1", "hard_neg")
# Which options name the columns of a row's texts.
COLUMN_OPTIONS = ("--text-column", *(f"--{name}-column" for name in COLUMNS))
# Row r of file f has the number f * 2^40 + r, unique and the same on every run.
FILE_BITS = 40


@dataclass(frozen=True)
class Shard:
    """A piece of one file. start, stop: bytes of a line file (stop 0: all of it), row groups of a
    Parquet file, rows of a data set."""

    path: str
    kind: str
    start: int = 0
    stop: int = 0
    first_row: int = 0
    files: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """What will be read. ignored: files of unknown kind found in folders. companions: the columns
    of the texts that go with each text, in the order of cotbert_core.batch.COLUMNS."""

    shards: list[Shard]
    files: list[str]
    ignored: int
    text_column: str
    id_column: str | None = None
    companions: tuple[str, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns of a row's texts."""
        return self.text_column, *self.companions

    @property
    def columns(self) -> tuple[str, ...]:
        """Which companions each row has, by their names in cotbert_core.batch.COLUMNS."""
        return COLUMNS[: len(self.companions)]


def plan(
    inputs: Sequence[str],
    text_column: str = "text",
    id_column: str | None = None,
    shard_bytes: int = 4 << 20,
    companions: Sequence[str] = (),
) -> Plan:
    """Find the files, check them and cut them into shards; UserError for what is wrong."""
    files, ignored = _find(inputs)
    companions = _with_sick(files, tuple(companions))
    made = Plan([], files, ignored, text_column, id_column, companions)
    shards: list[Shard] = []
    for number, name in enumerate(files):
        try:
            shards += _shards(name, number << FILE_BITS, made, shard_bytes)
        except OSError as error:
            raise UserError(
                f"input {name!r} cannot be read ({error.strerror or error}): mend its rights or "
                "leave it out"
            ) from None
    return replace(made, shards=shards)


def kind_of(name: str) -> str | None:
    """The format of an input, by its prefix or its ending; None for an unknown one."""
    for prefix, source in _PREFIXES.items():
        if name.startswith(prefix):
            return source
    ending, compression = locations.suffixes(name)
    kind = KINDS.get(ending)
    return kind if kind in COMPRESSIBLE or not compression else None


_PREFIXES = {DOCSTRINGS: "docstrings", sick.PREFIX: "sick", hub_datasets.PREFIX: "hub"}


def stamps(plan: Plan) -> dict[str, list[int]]:
    """Size in bytes and time of change in nanoseconds of each file: what tells one state of the
    input from another. Of docstrings and data sets it is their files' sum and latest."""
    parts: dict[str, list[str]] = {name: [] for name in plan.files}
    for shard in plan.shards:
        parts[shard.path] += shard.files
    return {name: _stamp(name, files) for name, files in parts.items()}


def _stamp(name: str, files: Sequence[str]) -> list[int]:
    paths = [str(sick.train_file(name))] if name.startswith(sick.PREFIX) else files or [name]
    found = [locations.stamp(path) for path in dict.fromkeys(paths)]
    return [sum(size for size, _ in found), max((time for _, time in found), default=0)]


def are_triples(inputs: Sequence[str]) -> bool:
    """Whether the input is csv and tsv files alone that hold the columns TRIPLES and no `text`.

    Input from SICK, which is triples anyway, may stand beside them.
    """
    files = [name for name in _find(inputs)[0] if not name.startswith(sick.PREFIX)]
    return bool(files) and all(map(_has_triples, files))


def _has_triples(name: str) -> bool:
    kind = kind_of(name)
    if kind not in DELIMITERS:
        return False
    try:
        header = _header(name, kind)
    except (OSError, UserError):  # `plan` tells
        return False
    return set(TRIPLES) <= set(header) and "text" not in header


def _find(inputs: Sequence[str]) -> tuple[list[str], int]:
    """The distinct files of all inputs by their paths, in whatever order they were named, and how
    many were of unknown kind."""
    files: set[str] = set()
    ignored: set[str] = set()
    for item in inputs:
        found, skipped = _expand(item)
        files.update(found)
        ignored.update(skipped)
    return sorted(files), len(ignored)


def _with_sick(files: list[str], companions: tuple[str, ...]) -> tuple[str, ...]:
    """The companions' columns; input from SICK alone has them without being told."""
    from_sick = [name for name in files if name.startswith(sick.PREFIX)]
    if not from_sick or len(companions) == len(COLUMNS):
        return companions
    if companions or len(from_sick) < len(files):
        raise UserError(
            f"input {from_sick[0]!r} gives triples and so must all input with it: name both "
            "--augmented-column and --negative-column of the other files, or prepare it apart"
        )
    return TRIPLES[1:]


def _expand(item: str) -> tuple[list[str], list[str]]:
    """The files that a path, folder or glob names, and those of unknown kind among them."""
    if item.startswith(DOCSTRINGS):
        return [item], []
    if item.startswith(sick.PREFIX):
        return [sick.PREFIX + str(sick.train_file(item).parent)], []
    if item.startswith(hub_datasets.PREFIX):
        return [item], []
    return locations.find(item, lambda name: kind_of(name) is not None, ENDINGS)


def _shards(name: str, first_row: int, plan: Plan, size: int) -> Iterator[Shard]:
    """The shards of one file, its encoding and its columns checked."""
    kind = kind_of(name) or ""
    if plan.companions and kind in ("txt", "docstrings"):
        raise UserError(
            f"input {name!r} has no columns and so no {plan.companions[0]!r}: give csv, tsv, "
            f"jsonl or parquet, or leave out {COLUMN_OPTIONS[1]}"
        )
    if kind == "sick":
        sick.check(name)
        yield Shard(name, kind, first_row=first_row)
    elif kind == "docstrings":
        yield from _docstring_shards(name, first_row)
    elif kind == "hub":
        yield from _hub_shards(name, first_row, plan)
    elif kind == "parquet":
        yield from _parquet_shards(name, first_row, plan)
    else:
        yield from _text_shards(name, kind, first_row, plan, size)


def _text_shards(name: str, kind: str, first_row: int, plan: Plan, size: int) -> Iterator[Shard]:
    """Files of lines on this machine are cut; what is compressed or elsewhere is one shard, since
    a line's place would have to be looked for from the beginning; and csv is, since a line break
    may lie inside a row."""
    with locations.open_stream(name) as stream:
        head = bytes(stream.read(HEAD_BYTES))
    check_encoding(name, head)
    if kind in DELIMITERS:
        _check_columns(name, plan, _header(name, kind))
    if kind in DELIMITERS or locations.suffixes(name)[1] or locations.is_uri(name):
        if head:
            yield Shard(name, kind, first_row=first_row)
    else:
        yield from _line_shards(Path(name), kind, first_row, size)


def _hub_shards(name: str, first_row: int, plan: Plan) -> Iterator[Shard]:
    rows, schema, files = hub_datasets.describe(name)
    _check_columns(name, plan, schema.names)
    _check_types(name, plan, schema)
    for start in range(0, rows, hub_datasets.SHARD_ROWS):
        stop = min(start + hub_datasets.SHARD_ROWS, rows)
        yield Shard(name, "hub", start, stop, first_row + start, files)


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


def _line_shards(path: Path, kind: str, first_row: int, size: int) -> Iterator[Shard]:
    start = 0
    with path.open("rb") as lines:
        while chunk := lines.read(size):
            length, breaks = len(chunk), chunk.count(b"\n")
            while not chunk.endswith(b"\n") and (chunk := lines.readline(size)):
                length += len(chunk)  # piece by piece: a line may be as long as the file
                breaks += chunk.endswith(b"\n")
            yield Shard(str(path), kind, start, start + length, first_row)
            start += length
            first_row += breaks


def _parquet_shards(name: str, first_row: int, plan: Plan) -> Iterator[Shard]:
    try:
        parquet = pq.ParquetFile(locations.open_file(name))
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, PermissionError):
            raise
        raise UserError(
            f"input {name!r} is not a whole Parquet file ({error}): copy it again"
        ) from None
    schema = parquet.schema_arrow
    _check_columns(name, plan, schema.names)
    _check_types(name, plan, schema)
    for group in range(parquet.num_row_groups):
        yield Shard(name, "parquet", group, group + 1, first_row)
        first_row += parquet.metadata.row_group(group).num_rows


def _check_types(name: str, plan: Plan, schema: pa.Schema) -> None:
    """Texts must be text, also where a dictionary holds it, or all null; ids whole numbers."""
    for column in plan.texts:
        kind = schema.field(column).type
        inner = kind.value_type if pa.types.is_dictionary(kind) else kind
        if not any(is_kind(inner) for is_kind in _TEXTS):
            raise UserError(f"{name!r}, column {column!r} is of type {kind}: it must be text")
    if plan.id_column and not pa.types.is_integer(schema.field(plan.id_column).type):
        raise UserError(f"{name!r}, column {plan.id_column!r} must hold whole numbers")


_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_null)


def _header(name: str, kind: str) -> list[str]:
    """The column names of a csv or tsv file."""
    header = next(delimited_rows(name, DELIMITERS[kind]), [])
    if isinstance(header, Unusable):
        raise UserError(f"the first line of {name!r} names no columns ({header}): mend it")
    return header


def _check_columns(name: str, plan: Plan, found: Sequence[str]) -> None:
    options = dict(zip(plan.texts, COLUMN_OPTIONS, strict=False))
    if plan.id_column:
        options[plan.id_column] = "--id-column"
    for column in options:
        if found.count(column) > 1:
            raise UserError(f"{name!r} has {found.count(column)} columns {column!r}: rename them")
    missing = [column for column in options if column not in found]
    if not missing:
        return
    there = f"it has {', '.join(found) or 'none'}"
    use = f"name one with {options[missing[0]]}"
    if plan.texts == TRIPLES:
        use = f"name them with {', '.join(COLUMN_OPTIONS)} in place of --triples"
    raise UserError(f"{name!r} has no column {missing[0]!r}: {there}; {use}")


def all_have_integers(plan: Plan, column: str) -> bool:
    """Whether all files are Parquet and have this column of whole numbers."""
    if not all(kind_of(file) == "parquet" for file in plan.files):
        return False
    schemas = [pq.read_schema(locations.open_file(file)) for file in plan.files]
    return all(column in s.names and pa.types.is_integer(s.field(column).type) for s in schemas)
