"""The texts on which `cotbert quantize` calibrates a graph and compares it with the encoder."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import chain, islice

import numpy as np

from cotbert_core.errors import UserError
from pipelines.embedding.job import SHARD_BYTES
from pipelines.options.jobs import LEAST_TEXTS, QuantizeOptions
from pipelines.reading import sources
from pipelines.reading.read_plan import ReadPlan
from pipelines.reading.readers import read

# Rows are taken from this many shards at equal distances, since files may be sorted. Fewer are read
# to their ends: a csv, a parquet or a compressed file may be a single shard.
CALIBRATION_SHARDS = 16


def calibration_texts(options: QuantizeOptions) -> list[str]:
    """Return distinct texts from all over the input, in a fixed random order."""
    plan = sources.plan(
        options.inputs,
        options.text_column,
        None,
        SHARD_BYTES,
        encoding=options.encoding,
        delimiter=options.delimiter,
    )
    found = sorted(set(_spread_texts(plan, 2 * options.rows)))
    if len(found) < 2 * LEAST_TEXTS:
        raise UserError(
            f"the input has {len(found)} different texts: give at least {2 * LEAST_TEXTS}, half of "
            "them to calibrate the graph and half to compare"
        )
    return [found[place] for place in np.random.default_rng(0).permutation(len(found))]


def _spread_texts(plan: ReadPlan, rows: int) -> list[str]:
    """Return at most `rows` usable texts from places all over the input.

    They are a sample of all texts of fewer than CALIBRATION_SHARDS shards. Of more shards, as many
    give their first texts, equally many each; after a shard that has too few, the others give more.
    """
    number = min(CALIBRATION_SHARDS, len(plan.shards))
    shards = np.linspace(0, len(plan.shards), number, endpoint=False).astype(int)
    each = [chain.from_iterable(p.texts for p in read(plan.shards[i], plan)) for i in shards]
    if number < CALIBRATION_SHARDS:
        return _sample(chain.from_iterable(each), rows)
    texts: list[str] = []
    for turn, there in enumerate(each):
        texts += islice(there, (rows - len(texts)) // (number - turn))
    return texts


def _sample(texts: Iterable[str], rows: int) -> list[str]:
    """Return `rows` texts, each one of all with the same probability, or all if they are fewer."""
    sample, numbers = list[str](), random.Random(0)
    for place, text in enumerate(texts):
        if place < rows:
            sample.append(text)
        elif (taken := numbers.randrange(place + 1)) < rows:
            sample[taken] = text
    return sample
