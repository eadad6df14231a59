"""The actor of `cotbert embed`, which holds the encoder and writes blocks of rows as parts.

The actor writes its vectors itself, so none passes through the driver or Ray's object store.
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
    BlockRange,
    block_name,
    record_file,
    skipped_row,
    write_end,
)
from pipelines.embedding.encoding import encode_block
from pipelines.embedding.options import TOO_LONG, EmbedOptions
from pipelines.embedding.quantization import Storage, write_part
from pipelines.reading.bad_rows import BadRow, excerpt
from pipelines.reading.pieces import Piece
from pipelines.reading.read_plan import ReadPlan
from pipelines.reading.readers import read
from pipelines.storage.resumable_output import atomic_file, write_json_atomic


@dataclass(frozen=True)
class EmbedTask:
    """Everything that a worker needs. model: folder or hub name. output: folder of the parts."""

    options: EmbedOptions
    model: str
    plan: ReadPlan
    ranges: tuple[BlockRange, ...]
    storage: Storage
    output: str
    scratch: str


# Number of shapes for which oneDNN keeps compiled code. The last batch of every block has a shape
# of its own, so memory grows until oneDNN's default limit of 1,024 is reached: by 104 MiB from
# 100,000 to 300,000 rows of a small encoder, and by 29 MiB with 256.
PRIMITIVES = "256"


class BlockEmbedder:
    """An actor that embeds the blocks of range `id` that are not done yet."""

    def __init__(self, task: EmbedTask, threads: int) -> None:
        os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", PRIMITIVES)
        torch.set_num_threads(threads)
        # By default each worker's tokenizer starts a thread for every core of the machine.
        os.environ.setdefault("RAYON_NUM_THREADS", str(threads))
        self._task = task
        self._output, self._scratch = Path(task.output), Path(task.scratch)
        options = task.options
        self._encoder = SentenceEncoder.from_pretrained(
            task.model, options.template, options.readout, attention=options.attention
        )
        if options.backend == "openvino":
            from cotbert_core.exporting.openvino_model import with_openvino

            self._encoder = with_openvino(self._encoder, options.precision)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        block_range, plan = self._task.ranges[int(row["id"])], self._task.plan
        blocks = 0
        for piece in read(plan.shards[block_range.shard], plan):
            if not piece.read:  # the shard ended with the block before
                continue
            done = record_file(self._scratch, block_range.shard, blocks).exists()
            if block_range.contains(blocks) and not done:
                self._block(block_range.shard, blocks, piece)
            blocks += 1
        write_end(self._scratch, block_range.shard, blocks)
        return {"id": int(row["id"])}

    def _block(self, shard: int, block: int, piece: Piece) -> None:
        """Write a block's part, if any row has a vector, and then its record."""
        started = time.time()
        counts = Counter({"read": piece.read})
        bad = piece.bad
        if piece.texts:
            bad = sorted(bad + self._part(shard, block, piece, counts), key=lambda row: row.row)
        counts.update(f"{SKIPPED}{row.reason}" for row in bad)
        file = self._task.plan.shards[shard].path
        record = {
            "counts": counts,
            "started": started,
            "ended": time.time(),
            "peak_mib": peak_mib(),
            "skipped": [skipped_row(file, row) for row in bad],
        }
        write_json_atomic(record_file(self._scratch, shard, block), record)

    def _part(self, shard: int, block: int, piece: Piece, counts: Counter[str]) -> list[BadRow]:
        """Write the vectors of a piece's rows; return the rows that are too long for the model."""
        options, storage = self._task.options, self._task.storage
        encoded = encode_block(self._encoder, piece.texts, options.on_long, options.precision)
        stored, clipped = storage.quantize(storage.shorten(encoded.vectors))
        counts.update(encoded.counts, clipped=clipped, rows=len(stored))
        if len(stored):
            ids = [piece.ids[place] for place in encoded.rows]
            passthrough = [[values[n] for n in encoded.rows] for values in piece.passthrough]
            path = self._output / f"part-{block_name(shard, block)}.parquet"
            with atomic_file(path, self._scratch) as partial:
                write_part(storage.table(ids, passthrough, stored), partial)
        given = set(encoded.rows.tolist())
        return [
            BadRow(piece.numbers[place], piece.ids[place], TOO_LONG, excerpt(text))
            for place, text in enumerate(piece.texts)
            if place not in given
        ]


def peak_mib() -> float:
    """Return the most memory that this process has held, in MiB."""
    status = Path("/proc/self/status")
    if status.is_file():  # Linux: its ru_maxrss includes the process before its exec
        lines = status.read_text(encoding="utf-8").splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2  # macOS: bytes
