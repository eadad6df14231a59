"""The driver of `cotbert prepare`: read shards, choose rows, write parts, count documents.

Each stage but the last writes its results to the scratch folder and skips those that exist. The
driver holds a few numbers per shard; ids and the choice of rows stay on disk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cotbert_core.errors import UserError, counted
from cotbert_core.templates.tokenizing import SentenceTokenizer
from pipelines.preparing import document_rows, duplicates
from pipelines.preparing.hold_out import mark_held_out, write_held_out
from pipelines.preparing.near_duplicates import NearDuplicates
from pipelines.preparing.options import PrepareOptions
from pipelines.preparing.part_tasks import RowRange, WritePart
from pipelines.preparing.scratch_files import DROPPED, KEEP_FILE, read_counts, shard_file
from pipelines.preparing.shard_tasks import ReadShard, Rules
from pipelines.reading.data_folder import make_data_folder, part_files
from pipelines.reading.formats import OF_TEXT
from pipelines.reading.lost_rows import LostRows
from pipelines.reading.manifests import HELD_OUT_FILE
from pipelines.reading.pieces import PIECE_ROWS
from pipelines.reading.read_plan import ReadPlan, Shard
from pipelines.runtime.progress import Progress
from pipelines.runtime.shard_tasks import map_shards
from pipelines.storage.resumable_output import ResumableOutput, atomic_file, write_json_atomic

# Minimum number of rows of a part, except the last, so that many small files become few parts.
PART_ROWS = 16_384
# A shard with more rows may be split into several parts: a compressed file is a single shard.
UNIT_ROWS = 8 * PIECE_ROWS


@dataclass
class FirstPass:
    """The results of the first pass.

    shards: of the input. kept: (shards,) number of rows kept. lost: unusable rows by file.
    """

    shards: Sequence[Shard]
    kept: np.ndarray
    lost: LostRows = field(default_factory=LostRows)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, number: int, counts: Counter[str]) -> None:
        self.kept[number] = counts.pop("kept")
        self.lost.add(self.shards[number], counts)
        self.counts += counts


def finished(scratch: Path, pattern: str) -> dict[int, Path]:
    """Return the count files of finished shards (`[0-9]*.json`) or parts (`part-*.json`)."""
    return {int(path.stem.removeprefix("part-")): path for path in scratch.glob(pattern)}


def read_shards(
    plan: ReadPlan, stamps: Mapping[str, Sequence[int]], rules: Rules, work: ResumableOutput
) -> FirstPass:
    """Run the first pass over the shards that are not done yet. stamps: [size, ...] by file."""
    count = len(plan.shards)
    first_pass = FirstPass(plan.shards, np.zeros(count, np.int64))
    done = finished(work.scratch, "[0-9]*.json")
    for number, path in done.items():
        first_pass.add(number, read_counts(path))
    numbers = tuple(number for number in range(count) if number not in done)
    sizes = shard_bytes(plan, stamps)
    finished_bytes = sum(sizes[number] for number in done)
    progress = Progress("prepare", sum(sizes), "bytes read")
    progress.start_at(finished_bytes)
    task = ReadShard(plan, numbers, work.scratch, rules)
    for row in map_shards(task, len(numbers)):
        first_pass.add(row["number"], row["counts"])
        finished_bytes += sizes[row["number"]]
        progress.show(finished_bytes, counted(first_pass.counts["read"], "row"))
    return first_pass


def shard_bytes(plan: ReadPlan, stamps: Mapping[str, Sequence[int]]) -> list[int]:
    """Return the size of each shard: shards without offsets have equal parts of their file."""
    shards = Counter(shard.path for shard in plan.shards)
    return [
        shard.stop - shard.start
        if shard.stop and shard.kind in OF_TEXT
        else stamps[shard.path][0] // shards[shard.path]
        for shard in plan.shards
    ]


def choose_rows(shards: int, options: PrepareOptions, work: ResumableOutput) -> Counter[str]:
    """Write the flags of the rows that stay, and return the counts of the others.

    The first row of each id and one of each cluster of near duplicates stay, and of these a sample:
    rows, or whole documents, with the smallest hashes, whatever the order of the input. In a corpus
    of documents, boilerplate sentences are dropped.
    """
    scratch = work.scratch
    counts_file = scratch / f"{KEEP_FILE}.json"
    if counts_file.is_file():
        return read_counts(counts_file)
    if options.documents:
        document_rows.write_offsets(scratch, shards)
    with atomic_file(scratch / KEEP_FILE, scratch) as keep:
        counts = _chosen(shards, options, keep, scratch)
    write_json_atomic(counts_file, counts)
    return counts


def _chosen(shards: int, options: PrepareOptions, keep: Path, scratch: Path) -> Counter[str]:
    """Write `keep` and return the counts of the rows that do not stay."""
    ids = [shard_file(scratch, number, "ids") for number in range(shards)]
    places = [shard_file(scratch, number, "places") for number in range(shards)]
    counts: Counter[str] = Counter()
    if options.documents:
        left, many = document_rows.mark_first(ids, places, keep, scratch)
        counts[f"{DROPPED}{document_rows.MANY}"] = many
    else:
        left, many = duplicates.mark_first(ids, keep, scratch), 0
    counts[f"{DROPPED}duplicate"] = keep.stat().st_size - left - many
    if options.near_duplicates is not None:
        near = [shard_file(scratch, number, "near") for number in range(shards)]
        dropped = NearDuplicates(ids, near, keep, options.near_duplicates).drop(scratch)
        counts[f"{DROPPED}near_duplicate"] = dropped
        left -= dropped
    if options.sample is not None:
        of_documents = partial(document_rows.document_chunks, places)
        keys = of_documents if options.documents else partial(duplicates.chunks, ids)
        stay = duplicates.keep_sample(keys, keep, options.sample, scratch)
        counts["sampled_out"] = left - stay
    if options.hold_out is not None:
        counts[f"{DROPPED}held_out"] = mark_held_out(options, places, keep, scratch, many)
    return counts


def write_parts(
    tokenizer: SentenceTokenizer,
    options: PrepareOptions,
    kept: Sequence[int],
    work: ResumableOutput,
) -> Counter[str]:
    """Run the second pass over the parts that are not done yet. kept: rows of each shard."""
    units = list(_units(kept, work.scratch / KEEP_FILE))
    groups = _groups(units)
    done = finished(work.scratch, "part-*.json")
    counts = sum(map(read_counts, done.values()), Counter[str]())
    numbers = tuple(number for number in range(len(groups)) if number not in done)
    progress = Progress("prepare", sum(rows for _, rows in units), "sentences")
    progress.start_at(_gone_through(counts))
    task = WritePart(
        tokenizer.json,
        options.max_length,
        options.clean,
        work.scratch,
        make_data_folder(work.output),
        groups,
        numbers,
        placed=options.documents is not None or options.hold_out is not None,
        documents=options.documents is not None,
        unknown=tokenizer.hf.unk_token_id,
    )
    for row in map_shards(task, len(numbers)):
        counts += row["counts"]
        progress.show(_gone_through(counts))
    return counts


def rows_written(work: ResumableOutput) -> int:
    """Return the number of rows in the finished parts."""
    parts = finished(work.scratch, "part-*.json").values()
    return sum(read_counts(path)["rows"] for path in parts)


def finish_documents(
    options: PrepareOptions, counts: Counter[str], work: ResumableOutput
) -> tuple[dict[str, Any], Counter[int], list[str]]:
    """Write the held-out file if rows were held out.

    Returns entries of the manifest, the number of documents with 1, 2, ... sentences, and warnings.
    counts: of all rows. Raises UserError if no document has two sentences.
    """
    entries: dict[str, Any] = {}
    held_out = queries = 0
    if options.hold_out is not None:
        files = sorted(work.scratch.glob("part-*.held"))
        if files:
            held_out, queries = write_held_out(files, work.output / HELD_OUT_FILE, work.scratch)
        entries["held_out"] = held_out
    if options.documents is None:
        return entries, Counter(), []
    sizes = document_rows.document_sizes(part_files(work.output), work.scratch)
    repeated = document_rows.many_documents_warning(counts)
    if max(sizes) < 2:
        raise UserError(
            f"documents is {options.documents!r} and each of the {sizes[1]:,} documents is a "
            "single sentence: name other documents, or leave out --documents"
            + "".join(f" ({warning})" for warning in repeated)
        )
    entries["documents"] = {
        "by": options.documents,
        "documents": sum(sizes.values()),
        "one_sentence": sizes[1],
        "held_out": held_out,
        **({"queries": queries} if options.queries else {}),
    }
    return entries, sizes, [*document_rows.giant_warning(sizes), *repeated]


def _gone_through(counts: Counter[str]) -> int:
    return counts["rows"] + sum(n for key, n in counts.items() if key.startswith(DROPPED))


def _units(kept: Sequence[int], keep: Path) -> Iterable[tuple[RowRange, int]]:
    """Yield ranges of up to UNIT_ROWS rows of a shard, each with its number of rows to write."""
    position = 0
    for shard, count in enumerate(map(int, kept)):
        for start in range(0, count, UNIT_ROWS):
            stop = min(start + UNIT_ROWS, count)
            rows = RowRange(shard, start, stop, position + start)
            flags = duplicates.read_flags(keep, position + start, position + stop)
            yield rows, int(np.count_nonzero(flags))
        position += count


def _groups(units: Sequence[tuple[RowRange, int]]) -> tuple[tuple[RowRange, ...], ...]:
    """Group adjacent ranges into parts of at least PART_ROWS rows; drop ranges without rows."""
    groups: list[list[RowRange]] = [[]]
    rows = 0
    for unit, count in units:
        if rows >= PART_ROWS:
            groups.append([])
            rows = 0
        if count:
            groups[-1].append(unit)
            rows += count
    return tuple(tuple(group) for group in groups if group)
