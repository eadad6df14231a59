"""The actor of `cotbert embed`, which holds the encoder and writes blocks of rows as parts.

The actor writes its vectors itself, so none passes through the driver or Ray's object store.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.training.precision import resolve_precision
from pipelines.embedding.blocks import (
    SKIPPED,
    BlockRange,
    block_name,
    record_file,
    skipped_row,
    write_end,
)
from pipelines.embedding.digests import (
    PartDigests,
    block_digest,
    part_counts,
    read_digests,
    text_digests,
    write_described_part,
)
from pipelines.embedding.earlier_rows import EarlierRows
from pipelines.embedding.encoding import encode_block
from pipelines.embedding.options import TOO_LONG, EmbedOptions
from pipelines.embedding.quantization import Storage, StoredRows, in_order
from pipelines.reading.bad_rows import BadRow, excerpt
from pipelines.reading.data_folder import DIGESTS_FOLDER
from pipelines.reading.ids import as_id
from pipelines.reading.pieces import Piece
from pipelines.reading.read_plan import ReadPlan
from pipelines.reading.readers import read
from pipelines.runtime.inference import for_inference, set_threads
from pipelines.storage.resumable_output import write_json_atomic


@dataclass(frozen=True)
class EmbedTask:
    """Everything that a worker needs.

    model: folder or hub name. output: the folder that becomes the job's. earlier: the rows of the
    embeddings that are updated.
    """

    options: EmbedOptions
    model: str
    plan: ReadPlan
    ranges: tuple[BlockRange, ...]
    storage: Storage
    output: Path
    scratch: Path
    earlier: EarlierRows | None = None


class BlockEmbedder:
    """An actor that embeds the blocks of range `id` that are not done yet.

    encoder: the model, where this process has it open.
    """

    def __init__(
        self, task: EmbedTask, threads: int, encoder: SentenceEncoder | None = None
    ) -> None:
        set_threads(threads)
        self._task, self._opened = task, encoder
        self._output, self._scratch = task.output, task.scratch
        self._opening, self._turn = Lock(), Lock()  # of the encoder
        self._precision: str | None = None  # until it is opened
        if task.earlier is None:  # before the first block, whose time counts for the rate
            _ = self._encoder

    @cached_property
    def _encoder(self) -> SentenceEncoder:
        """The encoder, which an update without new texts never opens."""
        options = self._task.options
        encoder = self._opened or SentenceEncoder.from_pretrained(
            self._task.model, options.template, options.readout, attention=options.attention
        )
        self._precision = resolve_precision(options.precision, encoder.backbone.device)
        return for_inference(encoder, options.backend, options.precision)

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
        file_of = self._task.plan.file_of
        record = {
            "counts": counts,
            "read": Counter(map(file_of, [*piece.numbers, *(row.row for row in piece.bad)])),
            "started": started,
            "ended": time.time(),
            "precision": self._precision,
            "skipped": [skipped_row(file_of(row.row), row) for row in bad],
            "short": piece.short,
        }
        if self._task.earlier:
            record["skipped_ids"] = [self._id(row) for row in bad]
        write_json_atomic(record_file(self._scratch, shard, block), record)

    def _id(self, bad: BadRow) -> int | str | None:
        """Return the id that a skipped row would have, None if it has none."""
        plan = self._task.plan
        return as_id(bad.id, plan.id_type) if plan.id_column else bad.row

    def _part(self, shard: int, block: int, piece: Piece, counts: Counter[str]) -> list[BadRow]:
        """Write the vectors of a piece's rows; return the rows that are too long for the model."""
        digests = text_digests(piece.texts)
        name, whole = f"part-{block_name(shard, block)}.parquet", block_digest(piece, digests)
        earlier = self._task.earlier
        same = earlier.blocks.get(whole) if earlier else None
        if earlier and same:
            given = self._link(earlier, same, name, counts)
        else:
            given = self._write(name, whole, piece, digests, counts)
        return [
            BadRow(piece.numbers[place], piece.ids[place], TOO_LONG, excerpt(text))
            for place, text in enumerate(piece.texts)
            if digests[place] not in given
        ]

    def _link(self, earlier: EarlierRows, part: str, name: str, counts: Counter[str]) -> set[bytes]:
        """Take over a whole part; return the digests of its texts."""
        earlier.link(part, self._output, name)
        table, facts = read_digests(self._output / DIGESTS_FOLDER / name)
        counts.update(facts["counts"], taken_over=len(table))
        return set(table["digest"].to_pylist())

    def _write(
        self, name: str, whole: str, piece: Piece, digests: Sequence[bytes], counts: Counter[str]
    ) -> set[bytes]:
        """Write a part and its file of digests, unless no row has a vector; return the digests."""
        made = self._stored(piece.texts, digests, counts)
        given = [digests[place] for place in made.rows]
        if not given:
            return set()
        ids = [piece.ids[place] for place in made.rows]
        passthrough = [[values[n] for n in made.rows] for values in piece.passthrough]
        table = self._task.storage.table(ids, passthrough, made)
        of_part = part_counts(table, made.long, made.duplicates, self._task.options)
        described = PartDigests(given, made.long, whole, of_part)
        write_described_part(self._output, self._scratch, name, table, described)
        counts.update(of_part)
        return set(given)

    def _stored(
        self, texts: Sequence[str], digests: Sequence[bytes], counts: Counter[str]
    ) -> StoredRows:
        """Return the rows of a block in their order, taken from earlier embeddings or encoded."""
        earlier = self._task.earlier
        places = earlier.find(digests) if earlier else np.full(len(texts), -1)
        known, new = np.flatnonzero(places >= 0), np.flatnonzero(places < 0)
        parts = []
        if earlier and len(known):
            parts.append(earlier.stored(known, places[known], self._task.storage))
            counts["taken_over"] += len(known)
        if len(new):
            made = self._encoded([texts[place] for place in new.tolist()], counts)
            parts.append(replace(made, rows=new[made.rows]))
        return in_order(parts)

    def _encoded(self, texts: Sequence[str], counts: Counter[str]) -> StoredRows:
        """Return the rows of texts that are encoded now."""
        options, storage = self._task.options, self._task.storage
        with self._opening:
            encoder = self._encoder
        encoded = encode_block(
            encoder, texts, options.on_long, options.precision, self._turn, options.passages
        )
        counts.update(encoded.counts)
        stored, others, scales = storage.quantize(encoded.vectors, encoded.passages)
        passages = storage.lists(others, encoded.passages.counts)
        return StoredRows(encoded.rows, stored, passages, scales, encoded.long, encoded.duplicates)
