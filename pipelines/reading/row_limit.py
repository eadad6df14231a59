"""The first rows of an input, to try a job on a few of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

from pipelines.reading.read_plan import ReadPlan, Shard
from pipelines.reading.readers import raw_rows


def first_rows(plan: ReadPlan, limit: int) -> ReadPlan:
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
    used = plan.files.index(shards[-1].path) + 1 if shards else 0
    return replace(plan, shards=shards, files=plan.files[:used])
