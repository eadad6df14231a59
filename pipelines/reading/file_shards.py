"""Shards of whole files: small files that one task reads, and files that are one text each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter

from pipelines.reading.documents import check_files
from pipelines.reading.formats import kind_of
from pipelines.reading.ids import STRING
from pipelines.reading.read_plan import FILE_BITS, ReadPlan, Shard

# The column of the ids of whole files, as a manifest names it.
PATH_COLUMN = "path"


def whole_files(plan: ReadPlan, limit: int | None = None) -> ReadPlan:
    """Return the plan in which each of the first `limit` files is one text, with its path for an
    id. UserError for input that is not files. plan: with documents "file"."""
    check_files(plan)
    for names in (plan.found.wrapped, plan.found.carriage_returns):
        names.clear()  # where a line ends does not matter
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
    """Return the shards with small files that follow one another joined to shards of up to `size`
    bytes and `most` files. Joined are local, uncompressed txt or jsonl files of one shard each."""
    return [_joined(group) for group in _groups(shards, size, most)]


def _groups(shards: Sequence[Shard], size: int, most: int) -> Iterator[list[Shard]]:
    group: list[Shard] = []
    held = 0
    for number, shard in enumerate(shards):
        alone = shard.start > 0 or not shard.stop or shard.kind not in ("txt", "jsonl")
        alone = alone or (number + 1 < len(shards) and shards[number + 1].path == shard.path)
        is_full = held + shard.stop > size or len(group) == most
        if group and (alone or is_full or group[0].kind != shard.kind):
            yield group
            group, held = [], 0
        if alone:
            yield [shard]
        else:
            group.append(shard)
            held += shard.stop
    if group:
        yield group


def _joined(group: Sequence[Shard]) -> Shard:
    if len(group) == 1:
        return group[0]
    rows = [shard.rows for shard in group if shard.rows is not None]
    known = len(rows) == len(group)
    return replace(group[0], joined=tuple(group), rows=sum(rows) if known else None)
