"""The actor of `cotbert embed`: it holds the encoder and turns blocks of rows into parts.

Vectors go from the actor to its part, so none passes through the driver or Ray's object store.
"""

from __future__ import annotations

import os
import resource
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from cotbert_core.sentence_encoder import SentenceEncoder
from pipelines.embedding.blocks import (
    SKIPPED,
    Unit,
    block_name,
    record_file,
    skipped_row,
    write_end,
    write_whole,
)
from pipelines.embedding.encoding import encode_block
from pipelines.embedding.options import TOO_LONG, EmbedOptions
from pipelines.embedding.quantization import Storage, write_part
from pipelines.reading.bad_rows import BadRow, excerpt
from pipelines.reading.read_plan import Plan
from pipelines.reading.readers import Piece, read
from pipelines.storage.resumable_output import atomic_file


@dataclass(frozen=True)
class Work:
    """All that a worker must know. model: the folder or hub name; output: where parts go."""

    options: EmbedOptions
    model: str
    plan: Plan
    units: tuple[Unit, ...]
    storage: Storage
    output: str
    scratch: str


# Shapes for which oneDNN keeps its compiled code. The last batch of every block has a shape of its
# own, so that memory grows until its own limit of 1,024 is reached: by 104 MiB from 100,000 to
# 300,000 rows of a small encoder, with 256 by 29.
PRIMITIVES = "256"


class EmbedUnit:
    """An actor: the blocks of unit `id` that are not done yet."""

    def __init__(self, work: Work, threads: int) -> None:
        os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", PRIMITIVES)
        torch.set_num_threads(threads)
        # The tokenizer's own threads, which else are as many as the machine has for each worker.
        os.environ.setdefault("RAYON_NUM_THREADS", str(threads))
        self._work = work
        self._output, self._scratch = Path(work.output), Path(work.scratch)
        options = work.options
        self._encoder = SentenceEncoder.from_pretrained(
            work.model, options.template, options.readout, attention=options.attention
        )
        if options.backend == "openvino":
            from cotbert_core.exporting.openvino_model import with_openvino

            self._encoder = with_openvino(self._encoder, options.precision)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        unit, plan = self._work.units[int(row["id"])], self._work.plan
        blocks = 0
        for piece in read(plan.shards[unit.shard], plan):
            if not piece.read:  # the shard ended with the block before
                continue
            done = record_file(self._scratch, unit.shard, blocks).exists()
            if unit.has(blocks) and not done:
                self._block(unit.shard, blocks, piece)
            blocks += 1
        write_end(self._scratch, unit.shard, blocks)
        return {"id": int(row["id"])}

    def _block(self, shard: int, block: int, piece: Piece) -> None:
        """Write the block's part, if any row has a vector, then its record."""
        started = time.time()
        counts = Counter({"read": piece.read})
        bad = piece.bad
        if piece.texts:
            bad = sorted(bad + self._part(shard, block, piece, counts), key=lambda row: row.row)
        counts.update(f"{SKIPPED}{row.reason}" for row in bad)
        file = self._work.plan.shards[shard].path
        record = {
            "counts": counts,
            "started": started,
            "ended": time.time(),
            "peak_mib": peak_mib(),
            "skipped": [skipped_row(file, row) for row in bad],
        }
        write_whole(record_file(self._scratch, shard, block), record)

    def _part(self, shard: int, block: int, piece: Piece, counts: Counter[str]) -> list[BadRow]:
        """Write the vectors of a piece's rows; the rows that are too long for one."""
        options, storage = self._work.options, self._work.storage
        encoded = encode_block(self._encoder, piece.texts, options.on_long, options.precision)
        stored, clipped = storage.quantize(storage.shorten(encoded.vectors))
        counts.update(encoded.counts, clipped=clipped, rows=len(stored))
        if len(stored):
            ids = [piece.ids[place] for place in encoded.rows]
            kept = [[column[place] for place in encoded.rows] for column in piece.kept]
            path = self._output / f"part-{block_name(shard, block)}.parquet"
            with atomic_file(path, self._scratch) as partial:
                write_part(storage.table(ids, kept, stored), partial)
        given = set(encoded.rows.tolist())
        return [
            BadRow(piece.numbers[place], piece.ids[place], TOO_LONG, excerpt(text))
            for place, text in enumerate(piece.texts)
            if place not in given
        ]


def peak_mib() -> float:
    """The most memory that this process has held, in MiB."""
    status = Path("/proc/self/status")
    if status.is_file():  # Linux, whose ru_maxrss counts what the process was before its exec
        lines = status.read_text(encoding="utf-8").splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2  # macOS: bytes
