"""The stages of `cotbert prepare` on the driver: read shards, choose rows, write parts.

Each stage leaves what it has done in the scratch folder and skips what is there already. The driver
holds a few numbers for each shard; ids and choices stay on disk.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.cleaning.options import CleanOptions
from pipelines.preparing import duplicates
from pipelines.preparing.near_duplicates import NearDuplicates
from pipelines.preparing.scratch_files import ids_file, near_file
from pipelines.preparing.shard_tasks import (
    DROPPED,
    KEEP_FILE,
    ReadShard,
    Rows,
    Rules,
    WritePart,
    write_counts,
)
from pipelines.reading.lost_rows import LostRows
from pipelines.reading.read_plan import Plan
from pipelines.reading.readers import PIECE_ROWS
from pipelines.runtime.progress import Progress
from pipelines.runtime.shard_tasks import map_shards
from pipelines.storage.resumable_output import ResumableOutput, atomic_file

# Rows that a part has at least, the last part aside: input of many small files makes few parts.
PART_ROWS = 16_384
# A shard of more rows may be shared out to several parts: one compressed file is one shard.
UNIT_ROWS = 8 * PIECE_ROWS


@dataclass
class Reading:
    """What the first pass found. kept: rows of each shard; lost: what each file lost; read: rows
    read of each file."""

    kept: np.ndarray
    lost: LostRows
    counts: Counter[str] = field(default_factory=Counter)
    read: Counter[str] = field(default_factory=Counter)

    def add(self, number: int, path: str, counts: Counter[str]) -> None:
        self.kept[number] = counts.pop("kept")
        self.lost.add(number, counts)
        self.read[path] += counts["read"]
        self.counts += counts


def finished(scratch: Path, pattern: str) -> dict[int, Path]:
    """The count files of shards (`[0-9]*.json`) or parts (`part-*.json`) that are done."""
    return {int(path.stem.removeprefix("part-")): path for path in scratch.glob(pattern)}


def read_shards(plan: Plan, rules: Rules, work: ResumableOutput) -> Reading:
    """The first pass over the shards that are not done yet."""
    count = len(plan.shards)
    reading = Reading(np.zeros(count, np.int64), LostRows(plan))
    done = finished(work.scratch, "[0-9]*.json")
    for number, path in done.items():
        reading.add(number, plan.shards[number].path, _read_counts(path))
    numbers = tuple(number for number in range(count) if number not in done)
    progress = Progress("prepare", count, "read")
    progress.start_at(len(done))
    task = ReadShard(plan, numbers, str(work.scratch), rules)
    for more, row in enumerate(map_shards(task, len(numbers)), start=1):
        reading.add(row["number"], plan.shards[row["number"]].path, row["counts"])
        progress.show(len(done) + more, f"{reading.counts['read']:,} rows")
    return reading


def choose_rows(
    shards: int, near_duplicates: float | None, sample: int | None, work: ResumableOutput
) -> Counter[str]:
    """Write which rows stay: the first of each id, of near duplicates one, and of those the
    `sample` with the smallest hash, which is as good as a draw and the same for any order of the
    input."""
    scratch = work.scratch
    told = scratch / f"{KEEP_FILE}.json"
    if told.is_file():
        return _read_counts(told)
    ids = [ids_file(scratch, number) for number in range(shards)]
    counts: Counter[str] = Counter()
    with atomic_file(scratch / KEEP_FILE, scratch) as keep:
        left = duplicates.mark_first(ids, keep, scratch)
        counts[f"{DROPPED}duplicate"] = keep.stat().st_size - left
        if near_duplicates is not None:
            near = [near_file(scratch, number) for number in range(shards)]
            dropped = NearDuplicates(ids, near, keep, near_duplicates).drop(scratch)
            counts[f"{DROPPED}near_duplicate"] = dropped
            left -= dropped
        if sample is not None:
            counts["sampled_out"] = left - duplicates.keep_smallest(ids, keep, sample)
    write_counts(counts, told)
    return counts


def write_parts(
    tokenizer_json: str,
    max_length: int,
    bounds: CleanOptions,
    kept: Sequence[int],
    work: ResumableOutput,
) -> Counter[str]:
    """The second pass over the parts that are not done yet. kept: rows of each shard."""
    units = list(_units(kept, work.scratch / KEEP_FILE))
    groups = _groups(units)
    done = finished(work.scratch, "part-*.json")
    counts = sum(map(_read_counts, done.values()), Counter())
    numbers = tuple(number for number in range(len(groups)) if number not in done)
    progress = Progress("prepare", sum(rows for _, rows in units), "sentences")
    progress.start_at(_gone_through(counts))
    task = WritePart(
        tokenizer_json, max_length, bounds, str(work.scratch), str(work.output), groups, numbers
    )
    for row in map_shards(task, len(numbers)):
        counts += row["counts"]
        progress.show(_gone_through(counts))
    return counts


def rows_written(work: ResumableOutput) -> int:
    """Rows in the parts that are done."""
    parts = finished(work.scratch, "part-*.json").values()
    return sum(_read_counts(path)["rows"] for path in parts)


def _gone_through(counts: Counter[str]) -> int:
    return counts["rows"] + sum(n for key, n in counts.items() if key.startswith(DROPPED))


def _units(kept: Sequence[int], keep: Path) -> Iterable[tuple[Rows, int]]:
    """Ranges of up to UNIT_ROWS rows of a shard, and how many rows of each stay."""
    position = 0
    for shard, count in enumerate(map(int, kept)):
        for start in range(0, count, UNIT_ROWS):
            stop = min(start + UNIT_ROWS, count)
            rows = Rows(shard, start, stop, position + start)
            yield rows, int(duplicates.kept(keep, position + start, position + stop).sum())
        position += count


def _groups(units: Sequence[tuple[Rows, int]]) -> tuple[tuple[Rows, ...], ...]:
    """Neighbours put together until a part has PART_ROWS; those without rows left out."""
    groups: list[list[Rows]] = [[]]
    rows = 0
    for unit, count in units:
        if rows >= PART_ROWS:
            groups.append([])
            rows = 0
        if count:
            groups[-1].append(unit)
            rows += count
    return tuple(tuple(group) for group in groups if group)


def _read_counts(path: Path) -> Counter[str]:
    counts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return Counter(counts)
