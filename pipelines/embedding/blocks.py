"""Blocks: up to PIECE_ROWS rows of a shard, embedded, written and recorded together.

A block is done when its record is in the scratch folder; its part has its name before that. A shard
whose last block was reached leaves its end there, which says how many blocks it has. Both go by the
shard alone and not by who made them, so the same job goes on with any number of workers.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelines.embedding.options import ID_COLUMN, TOO_LONG
from pipelines.reading.bad_rows import BadRow, excerpt
from pipelines.reading.lost_rows import LostRows, count_lost
from pipelines.reading.read_plan import Plan, Shard
from pipelines.reading.sources import FILE_BITS
from pipelines.storage.resumable_output import atomic_file

SKIPPED = "skipped."
SKIPPED_FILE = "skipped.jsonl"
# As many shards for each worker share the work out well enough; of fewer, every worker takes a
# share of each shard's blocks, and all of them read the shard. That takes 0.4 s for
# 100,000 rows of Parquet and 0.7 s of csv, while a core encodes 400 rows a second.
SHARDS_PER_WORKER = 4


@dataclass(frozen=True)
class Unit:
    """What a worker does in one go: of a shard's blocks each `phases`-th, from `phase` on."""

    shard: int
    phase: int
    phases: int

    def has(self, block: int) -> bool:
        return block % self.phases == self.phase


def units(plan: Plan, scratch: Path, workers: int) -> tuple[Unit, ...]:
    """What is left to do."""
    done = _finished_shards(scratch)
    left = [number for number in range(len(plan.shards)) if number not in done]
    made: list[Unit] = []
    for number in left:
        shared = len(left) < SHARDS_PER_WORKER * workers and not _is_small(plan.shards[number])
        phases = workers if shared else 1
        made += (Unit(number, phase, phases) for phase in range(phases))
    return tuple(made)


def _is_small(shard: Shard) -> bool:
    """Whether the shard was cut to about a block, or takes long to read."""
    return shard.kind == "docstrings" or (shard.kind in ("txt", "jsonl") and shard.stop > 0)


def _finished_shards(scratch: Path) -> set[int]:
    """The shards of which every block is there."""
    done = Counter(int(path.name.split("-")[1]) for path in scratch.glob("block-*.json"))
    ends = {int(path.stem.split("-")[1]): path for path in scratch.glob("end-*.json")}
    return {
        shard
        for shard, path in ends.items()
        if json.loads(path.read_text(encoding="utf-8"))["blocks"] == done[shard]
    }


def block_name(shard: int, block: int) -> str:
    return f"{shard:06}-{block:06}"


def record_file(scratch: Path, shard: int, block: int) -> Path:
    return scratch / f"block-{block_name(shard, block)}.json"


def write_end(scratch: Path, shard: int, blocks: int) -> None:
    write_whole(scratch / f"end-{shard:06}.json", {"blocks": blocks})


def write_whole(path: Path, value: Any) -> None:
    with atomic_file(path, path.parent) as partial:
        partial.write_text(json.dumps(value), encoding="utf-8")


def skipped_row(file: str, bad: BadRow) -> dict[str, Any]:
    """As it is listed in SKIPPED_FILE. row: its number in the file, from 0."""
    return {
        "file": file,
        "row": bad.row & ((1 << FILE_BITS) - 1),
        ID_COLUMN: excerpt(bad.id) if isinstance(bad.id, str) else _number(bad.id),
        "reason": bad.reason,
        "text": bad.text,
    }


def _number(value: Any) -> int | float | None:
    return value if isinstance(value, int | float) else None


@dataclass
class Ledger:
    """What the records in the scratch folder say. first, last: when the work of this run began
    and ended, without starting Ray and loading the encoder; peak_mib: of any worker."""

    scratch: Path
    counts: Counter[str] = field(default_factory=Counter)
    before: Counter[str] = field(default_factory=Counter)
    first: float = float("inf")
    last: float = 0.0
    peak_mib: float = 0.0
    _seen: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """What an earlier run left counts, but not for the rate."""
        self.update()
        self.before = self.counts.copy()
        self.first, self.last, self.peak_mib = float("inf"), 0.0, 0.0

    def update(self) -> bool:
        """Add the records that are new; whether there were any."""
        new = [p for p in self.scratch.glob("block-*.json") if p.name not in self._seen]
        for path in new:
            self._seen.add(path.name)
            self._add(json.loads(path.read_text(encoding="utf-8")))
        return bool(new)

    def _add(self, record: dict[str, Any]) -> None:
        self.counts.update(record["counts"])
        self.first = min(self.first, record["started"])
        self.last = max(self.last, record["ended"])
        self.peak_mib = max(self.peak_mib, record["peak_mib"])

    @property
    def fresh(self) -> int:
        """Rows that this run embedded."""
        return self.counts["rows"] - self.before["rows"]

    @property
    def rate(self) -> float:
        """Rows a second."""
        return self.fresh / max(self.last - self.first, 1e-9) if self.fresh else 0.0

    @property
    def skipped(self) -> dict[str, int]:
        """Rows without a vector, by reason."""
        named = ((k, n) for k, n in sorted(self.counts.items()) if k.startswith(SKIPPED))
        return {k.removeprefix(SKIPPED): n for k, n in named}

    @property
    def padding_waste(self) -> float:
        """Padding among all tokens that went through the encoder."""
        return self.counts["padding"] / max(1, self.counts["tokens"])

    def reasons(self) -> str:
        return ", ".join(f"{n} {reason}" for reason, n in self.skipped.items()) or "none read"

    def lost_rows(self, plan: Plan) -> LostRows:
        """What each file lost to rows that cannot be read."""
        lost = LostRows(plan)
        for path in sorted(self.scratch.glob("block-*.json")):
            record = json.loads(path.read_text(encoding="utf-8"))
            counts = Counter({"read": record["counts"]["read"]})
            bad = ((row["reason"], row["row"]) for row in record["skipped"])
            count_lost((row for row in bad if row[0] != TOO_LONG), counts)
            lost.add(int(path.name.split("-")[1]), counts)
        return lost

    def skipped_rows(self) -> Iterator[dict[str, Any]]:
        """Every row without a vector, block by block in the input's order."""
        for path in sorted(self.scratch.glob("block-*.json")):
            yield from json.loads(path.read_text(encoding="utf-8"))["skipped"]


def expected_rows(plan: Plan) -> int | None:
    """Rows of the input; None where that would take reading it."""
    rows: Sequence[int | None] = [shard.rows for shard in plan.shards]
    known = [n for n in rows if n is not None]
    return sum(known) if len(known) == len(rows) else None
