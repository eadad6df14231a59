"""Where text comes from: files at any place, docstrings, SICK and data sets, cut into shards.

A row has one text, or companions beside it: one (augmented) or two (augmented, negative), each in
a column of its own, as cotbert_core.training.batches names them. Everything a user can get wrong (a
missing path or column, a Parquet file cut short) is found by `plan` on the driver; what is wrong
with single rows is found by `pipelines.reading.readers`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from cotbert_core.errors import UserError
from cotbert_core.training.batches import COLUMNS
from pipelines.reading import columns, hub_datasets, locations, sick
from pipelines.reading.columns import TRIPLES
from pipelines.reading.encodings import named_encoding
from pipelines.reading.formats import DELIMITERS, DOCSTRINGS, ENDINGS, kind_of
from pipelines.reading.ids import INT64, STRING
from pipelines.reading.read_plan import Plan, Shard
from pipelines.reading.shard_splitting import cut

# Row r of file f has the number f * 2^40 + r, unique and the same on every run.
FILE_BITS = 40


def plan(
    inputs: Sequence[str],
    text_column: str = "text",
    id_column: str | None = None,
    shard_bytes: int = 4 << 20,
    companions: Sequence[str] = (),
    keep: Sequence[str] = (),
    encoding: str | None = None,
) -> Plan:
    """Find the files, check them and cut them into shards; UserError for what is wrong.

    encoding: of txt, csv, tsv and jsonl files; None for UTF-8.
    """
    files, ignored = _find(inputs)
    companions = _with_sick(files, tuple(companions))
    known = named_encoding(encoding)
    made = Plan([], files, ignored, text_column, id_column, companions, tuple(keep), known)
    shards: list[Shard] = []
    for number, name in enumerate(files):
        try:
            shards += cut(name, number << FILE_BITS, made, shard_bytes)
        except OSError as error:
            raise UserError(
                f"input {name!r} cannot be read ({error.strerror or error}): mend its rights or "
                "leave it out"
            ) from None
    id_type = STRING if made.found.text_ids else INT64
    return replace(made, shards=shards, id_type=id_type)


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


def are_triples(inputs: Sequence[str], encoding: str | None = None) -> bool:
    """Whether the input is csv and tsv files alone that hold the columns TRIPLES and no `text`.

    Input from SICK, which is triples anyway, may stand beside them.
    """
    files = [name for name in _find(inputs)[0] if not name.startswith(sick.PREFIX)]
    return bool(files) and all(_has_triples(name, encoding) for name in files)


def _has_triples(name: str, encoding: str | None) -> bool:
    kind = kind_of(name)
    if kind not in DELIMITERS:
        return False
    try:
        names = columns.header(name, kind, encoding)
    except (OSError, UserError):  # `plan` tells
        return False
    return set(TRIPLES) <= set(names) and "text" not in names


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


def all_have_integers(plan: Plan, column: str) -> bool:
    """Whether all files are Parquet and have this column of whole numbers."""
    if not all(kind_of(file) == "parquet" for file in plan.files):
        return False
    schemas = [pq.read_schema(locations.open_file(file)) for file in plan.files]
    return all(column in s.names and pa.types.is_integer(s.field(column).type) for s in schemas)
