"""Where text comes from: files, folders, globs, docstrings and SICK, cut into shards.

A row has one text, or companions beside it: one (augmented) or two (augmented, negative), each in
a column of its own, as cotbert_core.batch names them. Everything a user can get wrong (a missing
path or column, a Parquet file cut short) is found by `plan` on the driver; what is wrong with
single rows is found by `pipelines.readers`.
"""

from __future__ import annotations

import csv
import glob
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from cotbert_core.batch import COLUMNS
from cotbert_core.errors import UserError
from pipelines import docstrings, sick

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
# Sentence, entailment and contradiction in SimCSE's nli_for_simcse.csv.
TRIPLES = ("sent0", "sent1", "hard_neg")
# Which options name the columns of a row's texts.
COLUMN_OPTIONS = ("--text-column", *(f"--{name}-column" for name in COLUMNS))
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


def are_triples(inputs: Sequence[str]) -> bool:
    """Whether the input is csv and tsv files alone that hold the columns TRIPLES and no `text`.

    Input from SICK, which is triples anyway, may stand beside them.
    """
    files = [name for name in _find(inputs)[0] if not name.startswith(sick.PREFIX)]
    return bool(files) and all(map(_has_triples, files))


def _has_triples(name: str) -> bool:
    path = Path(name)
    kind = KINDS.get(path.suffix.lower())
    if kind not in DELIMITERS or not path.is_file():
        return False
    try:
        header = _header(path, kind)
    except OSError:  # `plan` tells
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
    path = Path(item).expanduser().absolute()
    if path.is_file():
        if path.suffix.lower() not in KINDS:
            raise UserError(
                f"input {item!r} ends in {path.suffix!r}: give one of {', '.join(KINDS)}"
            )
        return [str(path)], []
    if path.is_dir():
        found = [p for p in path.rglob("*") if p.is_file()]
    else:
        found = [Path(p) for p in glob.glob(str(path), recursive=True) if Path(p).is_file()]
    known = [str(p) for p in found if p.suffix.lower() in KINDS]
    if not known:
        what = "holds no file" if path.is_dir() else "does not exist or matches no file"
        raise UserError(f"input {item!r} {what} of a known kind: {', '.join(KINDS)}")
    return known, [str(p) for p in found if p.suffix.lower() not in KINDS]


def _shards(name: str, first_row: int, plan: Plan, size: int) -> Iterator[Shard]:
    """The shards of one file, its columns checked."""
    path = Path(name)
    kind = "docstrings" if name.startswith(DOCSTRINGS) else KINDS.get(path.suffix.lower(), "")
    if name.startswith(sick.PREFIX):
        sick.check(name)
        yield Shard(name, "sick", first_row=first_row)
    elif plan.companions and kind in ("txt", "docstrings"):
        raise UserError(
            f"input {name!r} has no columns and so no {plan.companions[0]!r}: give csv, tsv, "
            f"jsonl or parquet, or leave out {COLUMN_OPTIONS[1]}"
        )
    elif kind == "docstrings":
        yield from _docstring_shards(name, first_row)
    elif kind == "parquet":
        yield from _parquet_shards(path, first_row, plan)
    elif kind in DELIMITERS:
        _check_columns(path, plan, _header(path, kind))
        yield Shard(name, kind, first_row=first_row)
    else:
        yield from _line_shards(path, kind, first_row, size)


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
            chunk += lines.readline()
            yield Shard(str(path), kind, start, start + len(chunk), first_row)
            start += len(chunk)
            first_row += chunk.count(b"\n")


def _parquet_shards(path: Path, first_row: int, plan: Plan) -> Iterator[Shard]:
    try:
        parquet = pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise UserError(
            f"input {str(path)!r} is not a whole Parquet file ({error}): copy it again"
        ) from None
    schema = parquet.schema_arrow
    _check_columns(path, plan, schema.names)
    for column in plan.texts:
        kind = schema.field(column).type
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            raise UserError(f"{str(path)!r}, column {column!r} is of type {kind}: it must be text")
    if plan.id_column and not pa.types.is_integer(schema.field(plan.id_column).type):
        raise UserError(f"{str(path)!r}, column {plan.id_column!r} must hold whole numbers")
    for group in range(parquet.num_row_groups):
        yield Shard(str(path), "parquet", group, group + 1, first_row)
        first_row += parquet.metadata.row_group(group).num_rows


def _header(path: Path, kind: str) -> list[str]:
    """The column names of a csv or tsv file."""
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as lines:
        try:
            return next(csv.reader(lines, delimiter=DELIMITERS[kind]), [])
        except csv.Error as error:
            raise UserError(
                f"the first line of {str(path)!r} names no columns ({error}): mend it"
            ) from None


def _check_columns(path: Path, plan: Plan, found: Sequence[str]) -> None:
    options = dict(zip(plan.texts, COLUMN_OPTIONS, strict=False))
    if plan.id_column:
        options[plan.id_column] = "--id-column"
    missing = [column for column in options if column not in found]
    if not missing:
        return
    there = f"it has {', '.join(found) or 'none'}"
    use = f"name one with {options[missing[0]]}"
    if plan.texts == TRIPLES:
        use = f"name them with {', '.join(COLUMN_OPTIONS)} in place of --triples"
    raise UserError(f"{str(path)!r} has no column {missing[0]!r}: {there}; {use}")


def all_have_integers(plan: Plan, column: str) -> bool:
    """Whether all files are Parquet and have this column of whole numbers."""
    if not all(file.lower().endswith(".parquet") for file in plan.files):
        return False
    schemas = [pq.read_schema(file) for file in plan.files]
    return all(column in s.names and pa.types.is_integer(s.field(column).type) for s in schemas)
