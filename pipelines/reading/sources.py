"""Find the text that a job reads (files, docstrings, data sets) and split it into shards.

A row has one text and up to two paired texts (augmented, negative), each in its own column, named
as in cotbert_core.training.batches. `plan` raises user errors (a missing path or column, a
truncated Parquet file) on the driver; `pipelines.reading.readers` drops unusable rows.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

import pyarrow as pa

from cotbert_core.errors import UserError
from pipelines.reading import columns, docstrings, file_shards, hub_datasets, locations
from pipelines.reading.columns import TRIPLES
from pipelines.reading.delimiters import named_delimiter
from pipelines.reading.documents import COLUMN, FILE
from pipelines.reading.encodings import named_encoding
from pipelines.reading.formats import ABOUT_DATA, DELIMITERS, ENDINGS, kind_of
from pipelines.reading.ids import INT64, STRING
from pipelines.reading.input_files import find
from pipelines.reading.read_plan import FILE_BITS, KEEP, ReadPlan, Shard
from pipelines.reading.readers import raw_rows
from pipelines.reading.shard_splitting import split_file
from pipelines.runtime.progress import say_once


def plan(
    inputs: Sequence[str],
    text_column: str = "text",
    id_column: str | None = None,
    shard_bytes: int = 4 << 20,
    paired_columns: Sequence[str] = (),
    keep: Sequence[str] = (),
    encoding: str | None = None,
    documents: str | None = None,
    delimiter: str | None = None,
    limit: int | None = None,
    wrapped: bool = False,
    whole_files: bool = False,
    keep_paragraphs: bool = False,
    keep_option: str = KEEP,
) -> ReadPlan:
    """Return the plan for reading the inputs: check the files and split them into shards.

    text_column: one or several that are joined, separated by commas. shard_bytes: size of a shard
    of a file of lines. encoding, delimiter: as the user names them. limit: number of rows to read.
    The others are those of the ReadPlan. Raises UserError.
    """
    files, ignored = find_files(inputs)
    documents = FILE if whole_files else documents
    names = _as_given(inputs) if documents == FILE else {}
    if documents and documents.startswith(COLUMN):
        keep = (documents.removeprefix(COLUMN), *keep)
        keep_option = "--documents column:NAME"
    known, delimiter = named_encoding(encoding), named_delimiter(delimiter)
    made = ReadPlan(
        [],
        files,
        ignored,
        tuple(dict.fromkeys(name.strip() for name in text_column.split(","))),
        id_column,
        tuple(paired_columns),
        tuple(keep),
        known,
        delimiter,
        documents=documents,
        document_names=names,
        wrapped=wrapped,
        keep_paragraphs=keep_paragraphs,
        keep_option=keep_option,
    )
    if wrapped and "txt" not in map(kind_of, files):
        raise UserError(
            f"wrapped is given and the input, such as {files[0]!r}, has no txt file: leave it out"
        )
    shards = list(_shards_of(made, shard_bytes))
    columns.check_kept_keys(made)
    id_type = STRING if made.found.text_ids else INT64
    made = replace(made, shards=shards, id_type=id_type)
    if whole_files:
        return file_shards.whole_files(made, limit)
    return made if limit is None else _first_rows(made, limit)


def _shards_of(plan: ReadPlan, size: int) -> Iterator[Shard]:
    """Yield the shards of all files; UserError for a file that cannot be read. size: as in plan."""
    for number, name in enumerate(plan.files):
        try:
            yield from split_file(name, number << FILE_BITS, plan, size)
        except OSError as error:
            advice = "change its permissions" if error.errno else "copy it again"
            raise UserError(
                f"input {name!r} cannot be read ({error.strerror or error}): {advice} or leave it "
                "out"
            ) from None


def _first_rows(plan: ReadPlan, limit: int) -> ReadPlan:
    """Return the plan of the first `limit` rows of the input, unusable ones included.

    A shard with an unknown number of rows, unless it is the last, is read to count them, at most up
    to the limit.
    """
    shards: list[Shard] = []
    left = limit
    for shard in plan.shards:
        is_last = shard is plan.shards[-1]
        rows = shard.rows
        if rows is None and not is_last:
            rows = sum(1 for _ in islice(raw_rows(shard, plan), left + 1))
        if rows is not None and rows <= left:
            shards.append(shard)
            left -= rows
            continue
        if left:
            shards.append(replace(shard, most=left, rows=None if rows is None else left))
        break
    used = plan.files.index(shards[-1].path) + 1 if shards else len(plan.files)
    return replace(plan, shards=shards, files=plan.files[:used])


def stamps(plan: ReadPlan) -> dict[str, list[int]]:
    """Return [size in bytes, modification time in ns] of each file, to detect a changed input.

    Docstrings and data sets have the total size and the latest time of their files.
    """
    parts: dict[str, list[str]] = {name: [] for name in plan.files}
    for shard in plan.shards:
        parts[shard.path] += shard.files
    return {name: _stamp(name, files) for name, files in parts.items()}


def _stamp(name: str, files: Sequence[str]) -> list[int]:
    found = [locations.stamp(path) for path in dict.fromkeys(files or [name])]
    return [sum(size for size, _ in found), max((time for _, time in found), default=0)]


def are_triples(
    inputs: Sequence[str], encoding: str | None = None, delimiter: str | None = None
) -> bool:
    """Return whether all inputs are csv or tsv files with the columns TRIPLES, without `text`."""
    return all(_has_triples(name, encoding, delimiter) for name in find_files(inputs)[0])


def _has_triples(name: str, encoding: str | None, delimiter: str | None) -> bool:
    kind = kind_of(name)
    if kind not in DELIMITERS:
        return False
    try:
        names = columns.header(name, delimiter or DELIMITERS[kind], encoding)
    except (OSError, UnicodeError, UserError):  # `plan` refuses the file
        return False
    return set(TRIPLES) <= set(names) and "text" not in names


def find_files(inputs: Sequence[str]) -> tuple[list[str], int]:
    """Return the distinct files of all inputs, sorted, and the number of unknown files.

    Of several names of a file, by a link to its folder, `..` or file://, the first is taken. Raises
    UserError for an input that does not exist or is of no known format.
    """
    if isinstance(inputs, str):  # a loop over "/a.txt" would read the whole disk
        raise UserError(f"inputs is one string, {inputs!r}: put it in a list")
    files: set[str] = set()
    ignored: set[str] = set()
    for item in inputs:
        found, skipped = _expand(item)
        files.update(found)
        ignored.update(map(locations.real_path, skipped))
    names = {locations.real_path(name): name for name in sorted(files, reverse=True)}
    return sorted(names.values()), len(ignored)


def _as_given(inputs: Sequence[str]) -> dict[str, str]:
    """Return the path of each file as the user gave it: relative if its input is relative."""
    names: dict[str, str] = {}
    for item in sorted(set(inputs), reverse=True):
        relative = not (os.path.isabs(item) or item.startswith("~") or locations.is_uri(item))
        names |= {file: _relative(file) if relative else file for file in _expand(item)[0]}
    return names


def _relative(file: str) -> str:
    """Return the path of a file from the working directory, without `..` after a folder, unless the
    folder is a link: `link/../a.txt` is not `a.txt`."""
    short = os.path.relpath(file)
    same = locations.real_path(short) == locations.real_path(file)
    return short if same else file.removeprefix(os.path.join(os.getcwd(), ""))


def _expand(item: str) -> tuple[list[str], list[str]]:
    """Return the readable files of a path, folder or glob, and those of unknown format."""
    if item.startswith(hub_datasets.PREFIX):
        return [hub_datasets.absolute(item)], []
    if item.startswith(docstrings.PREFIX):
        return [item], []
    found, others = find(item, lambda name: kind_of(name) is not None, ENDINGS)
    pages = {name for name in found if locations.suffixes(name)[0] in ABOUT_DATA}
    if not pages or all(kind_of(name) == "txt" for name in found):
        return found, others
    say_once(
        f"note: the md and rst files in {item!r} ({len(pages):,}) are not read beside data files: "
        "name them to read them"
    )
    return [name for name in found if name not in pages], [*others, *pages]


def all_have_integers(plan: ReadPlan) -> bool:
    """Return whether all files are Parquet and have a column `id` with whole numbers of int64."""
    types = (plan.found.types[file] if kind_of(file) == "parquet" else {} for file in plan.files)
    return all(columns.fits_int64(one.get("id", pa.null())) for one in types)
