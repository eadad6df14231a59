"""Compute the scale of int8 vectors, once per job, from rows of the input."""

from __future__ import annotations

from itertools import chain, islice
from pathlib import Path

import numpy as np

from cotbert_core.errors import UserError
from cotbert_core.files import read_json
from cotbert_core.sentence_encoder import SentenceEncoder
from pipelines.embedding.encoding import encode_block
from pipelines.embedding.options import EmbedOptions
from pipelines.embedding.quantization import Storage, scale_of
from pipelines.reading.read_plan import ReadPlan
from pipelines.reading.readers import read
from pipelines.runtime.progress import say
from pipelines.storage.resumable_output import write_json_atomic

SCALE_FILE = "scale.json"
# Rows are taken from this many shards at equal distances, since files may be sorted.
CALIBRATION_SHARDS = 16


def calibrated_scale(
    encoder: SentenceEncoder, plan: ReadPlan, options: EmbedOptions, storage: Storage, scratch: Path
) -> tuple[float, ...]:
    """Return the (dimension,) scale, computed from options.calibration_rows rows.

    If an earlier run of the job computed it, that scale is returned, so all parts have the same.
    Raises UserError if no row can be used.
    """
    file = scratch / SCALE_FILE
    if file.is_file():
        return tuple(read_json(file))
    texts = calibration_texts(plan, options.calibration_rows)
    say(f"calibrating int8 on {len(texts):,} rows")
    encoded = encode_block(encoder, texts, options.on_long, options.precision)
    if not len(encoded.rows):
        raise UserError(
            f"none of {len(texts)} rows for the scale of int8 can be embedded: give a larger "
            "--calibration-rows, or another --dtype"
        )
    scale = scale_of(storage.shorten(encoded.vectors))
    write_json_atomic(file, scale)
    return scale


def calibration_texts(plan: ReadPlan, rows: int) -> list[str]:
    """Return at most `rows` usable texts, equally many from each of CALIBRATION_SHARDS shards.

    If a shard has too few, the shards after it give more.
    """
    number = min(CALIBRATION_SHARDS, len(plan.shards))
    shards = np.linspace(0, len(plan.shards), number, endpoint=False).astype(int)
    texts: list[str] = []
    for turn, shard in enumerate(shards):
        share = (rows - len(texts)) // (number - turn)
        there = (piece.texts for piece in read(plan.shards[shard], plan))
        texts += islice(chain.from_iterable(there), share)
    return texts
