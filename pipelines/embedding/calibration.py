"""The scale of int8 vectors, from the first rows of the input, once for a job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from cotbert_core.errors import UserError
from cotbert_core.files import read_json
from cotbert_core.sentence_encoder import SentenceEncoder
from pipelines.embedding.blocks import write_whole
from pipelines.embedding.encoding import encode_block
from pipelines.embedding.options import EmbedOptions
from pipelines.embedding.quantization import Storage, scale_of
from pipelines.reading.read_plan import Plan
from pipelines.reading.readers import read
from pipelines.runtime.progress import say

SCALE_FILE = "scale.json"
# Files may be sorted: the rows are the first of so many shards, evenly apart.
CALIBRATION_SHARDS = 16


def calibrated_scale(
    encoder: SentenceEncoder, plan: Plan, options: EmbedOptions, storage: Storage, scratch: Path
) -> tuple[float, ...]:
    """(dimension,) scale out of options.calibration_rows rows; what an earlier run of the job
    found, if there was one, so that all its parts have one scale. UserError without any row."""
    file = scratch / SCALE_FILE
    if file.is_file():
        return tuple(read_json(file))
    texts = calibration_texts(plan, options.calibration_rows)
    say(f"calibrating int8 on {len(texts):,} rows")
    encoded = encode_block(encoder, texts, options.on_long, options.precision)
    if not len(encoded.rows):
        raise UserError(
            f"none of {len(texts)} rows for the scale of int8 can be embedded: give more "
            "with --calibration-rows, or another --dtype"
        )
    scale = scale_of(storage.shorten(encoded.vectors))
    write_whole(file, scale)
    return scale


def calibration_texts(plan: Plan, rows: int) -> list[str]:
    """At most `rows` usable texts: as many of each of CALIBRATION_SHARDS shards, more of those
    after one that has too few."""
    number = min(CALIBRATION_SHARDS, len(plan.shards))
    places = np.linspace(0, len(plan.shards), number, endpoint=False).astype(int)
    texts: list[str] = []
    for turn, place in enumerate(places):
        share = (rows - len(texts)) // (number - turn)
        texts += _first_texts(plan, int(place), share)
    return texts


def _first_texts(plan: Plan, shard: int, count: int) -> list[str]:
    pieces: Iterator[list[str]] = (piece.texts for piece in read(plan.shards[shard], plan))
    texts: list[str] = []
    while len(texts) < count and (more := next(pieces, None)) is not None:
        texts += more[: count - len(texts)]
    return texts
