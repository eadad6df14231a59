"""Shards of whole files: small files that one task reads, and files that are one text each."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from math import inf
from operator import attrgetter

from pipelines.reading.documents import check_files
from pipelines.reading.formats import is_file, kind_of
from pipelines.reading.ids import STRING
from pipelines.reading.locations import is_uri, suffixes
from pipelines.reading.read_plan import FILE_BITS, ReadPlan, Shard

# The column of the ids of whole files, as a manifest names it.
PATH_COLUMN = "path"


def whole_files(plan: ReadPlan, limit: int | None = None) -> ReadPlan:
    """Return the plan in which each of the first `limit` files is one text, with its path for an
    id. UserError for input that is not files. plan: with documents "file"."""
    check_files(plan)
    for what in ("wrapped", "carriage_returns"):  # where a line ends does not matter
        plan.found.files[what].clear()
    files = plan.files[:limit]
    shards = {path: list(one) for path, one in groupby(plan.shards, attrgetter("path"))}
    return replace(
        plan,
        shards=[_of_file(number, name, shards.get(name)) for number, name in enumerate(files)],
        files=files,
        id_column=PATH_COLUMN,
        id_type=STRING,
        whole_files=True,
    )


def _of_file(number: int, name: str, shards: Sequence[Shard] | None) -> Shard:
    """Return the shard of a whole file. shards: of its parts, None if it is empty."""
    if shards is None:
        return Shard(name, kind_of(name) or "", first_row=number << FILE_BITS, rows=1)
    return replace(shards[0], stop=shards[-1].stop, rows=1)


def join_small_files(shards: Sequence[Shard], size: int, most: int) -> list[Shard]:
    """Return the shards with files that follow one another joined to shards of up to `size` bytes
    and `most` files. Joined are local, uncompressed files of one format and one shard each.

    To embed 600 files of ten lines took 82 s with a part for each of them, 33 s with two parts.
    """
    made: list[Shard] = []
    group: list[Shard] = []
    held = 0.0
    for _, one in groupby(shards, attrgetter("path")):
        of_file = list(one)
        length = _length(of_file)
        is_full = held + length > size or len(group) == most
        if group and (is_full or group[0].kind != of_file[0].kind):
            made.append(_joined(group))
            group, held = [], 0.0
        if length > size:
            made += of_file
        else:
            group += of_file
            held += length
    return [*made, *([_joined(group)] if group else [])]


def _length(of_file: Sequence[Shard]) -> float:
    """Return the bytes of a file that may be joined to others, else infinity."""
    name, kind = of_file[0].path, of_file[0].kind
    if len(of_file) > 1 or not is_file(kind) or is_uri(name) or suffixes(name)[1]:
        return inf
    return os.path.getsize(name)


def _joined(group: Sequence[Shard]) -> Shard:
    if len(group) == 1:
        return group[0]
    rows = [shard.rows for shard in group if shard.rows is not None]
    known = len(rows) == len(group)
    return replace(group[0], joined=tuple(group), rows=sum(rows) if known else None)
