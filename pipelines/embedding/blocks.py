"""Blocks: up to PIECE_ROWS rows of a shard that are embedded, written and recorded together.

A block is done when its record is in the scratch folder; its part is complete before that. When the
last block of a shard is reached, an end file says how many blocks the shard has. Neither depends on
the worker that wrote it, so a job can be continued with any number of workers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cotbert_core.files import read_json
from pipelines.embedding.options import ID_COLUMN, TOO_LONG
from pipelines.reading.bad_rows import FEWER_CELLS, BadRow, excerpt, with_prefix
from pipelines.reading.formats import OF_LINES
from pipelines.reading.lost_rows import LostRows, count_lost
from pipelines.reading.read_plan import ReadPlan, Shard, row_in_file
from pipelines.storage.resumable_output import write_json_atomic

SKIPPED = "skipped."
# This many shards per worker divide the work well enough. With fewer, every worker embeds a
# share of each shard's blocks, and all of them read the shard. Reading takes 0.4 s for 100,000 rows
# of Parquet and 0.7 s for csv, while a core encodes 400 rows a second.
SHARDS_PER_WORKER = 4


@dataclass(frozen=True)
class BlockRange:
    """The blocks of a shard that a worker embeds in one task: every `step`-th, from `start` on."""

    shard: int
    start: int
    step: int

    def contains(self, block: int) -> bool:
        return block % self.step == self.start


def block_ranges(plan: ReadPlan, scratch: Path, workers: int) -> tuple[BlockRange, ...]:
    """Return the block ranges of the shards that are not done yet."""
    done = _finished_shards(scratch)
    left = [number for number in range(len(plan.shards)) if number not in done]
    made: list[BlockRange] = []
    for number in left:
        shared = len(left) < SHARDS_PER_WORKER * workers and not _is_small(plan.shards[number])
        step = workers if shared else 1
        made += (BlockRange(number, start, step) for start in range(step))
    return tuple(made)


def _is_small(shard: Shard) -> bool:
    """Return whether a shard has about one block, or takes long to read."""
    return shard.kind == "docstrings" or (shard.kind in OF_LINES and shard.stop > 0)


def _finished_shards(scratch: Path) -> set[int]:
    """Return the shards whose blocks are all done."""
    done = Counter(int(path.name.split("-")[1]) for path in scratch.glob("block-*.json"))
    ends = {int(path.stem.split("-")[1]): path for path in scratch.glob("end-*.json")}
    return {shard for shard, path in ends.items() if read_json(path)["blocks"] == done[shard]}


def block_name(shard: int, block: int) -> str:
    return f"{shard:06}-{block:06}"


def record_file(scratch: Path, shard: int, block: int) -> Path:
    return scratch / f"block-{block_name(shard, block)}.json"


def write_end(scratch: Path, shard: int, blocks: int) -> None:
    write_json_atomic(scratch / f"end-{shard:06}.json", {"blocks": blocks})


def skipped_row(file: str, bad: BadRow) -> dict[str, Any]:
    """Return the entry of a row in SKIPPED_FILE. row: its number in the file, from 0."""
    row_id = excerpt(bad.id) if isinstance(bad.id, str) else bad.id
    if not isinstance(row_id, str | int | float):
        row_id = None
    return {
        "file": file,
        "row": row_in_file(bad.row),
        ID_COLUMN: row_id,
        "reason": bad.reason,
        "text": bad.text,
    }


@dataclass
class BlockLedger:
    """The totals of the records in the scratch folder.

    before: the counts of earlier runs. first, last: times at which this run's first block began and
    its last ended, which leaves out the start of Ray and of the encoder. precisions: number formats
    in which the encoder computed.
    """

    scratch: Path
    counts: Counter[str] = field(default_factory=Counter)
    before: Counter[str] = field(default_factory=Counter)
    first: float = float("inf")
    last: float = 0.0
    precisions: set[str] = field(default_factory=set)
    _seen: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Read the records of earlier runs, which do not count for the rate."""
        self.update()
        self.before = self.counts.copy()
        self.first, self.last = float("inf"), 0.0

    def update(self) -> bool:
        """Add the new records; return whether there were any."""
        new = [p for p in self.scratch.glob("block-*.json") if p.name not in self._seen]
        for path in new:
            self._seen.add(path.name)
            record = read_json(path)
            self.counts.update(record["counts"])
            self.first = min(self.first, record["started"])
            self.last = max(self.last, record["ended"])
            self.precisions |= {record.get("precision")} - {None}
        return bool(new)

    @property
    def new_rows(self) -> int:
        """The number of rows that this run embedded."""
        done = self.counts - self.before
        return done["rows"] - done["taken_over"]

    @property
    def rate(self) -> float:
        """The rows per second of this run."""
        seconds = self.last - self.first  # of clocks that may have been set back since
        return self.new_rows / seconds if self.new_rows and seconds > 0 else 0.0

    @property
    def skipped(self) -> dict[str, int]:
        """The number of rows without a vector for each reason."""
        return with_prefix(self.counts, SKIPPED)

    def lost_rows(self, plan: ReadPlan) -> LostRows:
        """Return the unusable rows of each file, and those with fewer cells than its header."""
        lost = LostRows()
        for number, record in self._records():
            faults: dict[str, list[tuple[str, int]]] = {file: [] for file in record["read"]}
            for row in record["skipped"]:
                if row["reason"] != TOO_LONG:
                    faults[row["file"]].append((row["reason"], row["row"]))
            for row in record["short"]:
                faults[plan.file_of(row)].append((FEWER_CELLS, row))
            for shard in plan.shards[number].parts:
                if shard.path in faults:
                    counts = Counter({"read": record["read"][shard.path]})
                    count_lost(faults[shard.path], counts)
                    lost.add(shard, counts)
        return lost

    def skipped_rows(self) -> Iterator[dict[str, Any]]:
        """Yield every row without a vector, block by block in the input's order."""
        for _, record in self._records():
            yield from record["skipped"]

    def skipped_ids(self) -> Iterator[int | str]:
        """Yield the ids of the rows without a vector, which an update records."""
        for _, record in self._records():
            yield from (row for row in record.get("skipped_ids", ()) if row is not None)

    def _records(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the shard and the record of each block, in the input's order."""
        for path in sorted(self.scratch.glob("block-*.json")):
            yield int(path.name.split("-")[1]), read_json(path)


def expected_rows(plan: ReadPlan) -> int | None:
    """Return the number of rows of the input; None if unknown before it is read."""
    known = [shard.rows for shard in plan.shards if shard.rows is not None]
    return sum(known) if len(known) == len(plan.shards) else None
