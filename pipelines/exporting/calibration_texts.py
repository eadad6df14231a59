"""The texts on which `cotbert quantize` calibrates a graph and compares it with the encoder."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np

from cotbert_core.errors import UserError, counted
from pipelines.embedding.job import SHARD_BYTES
from pipelines.options.jobs import LEAST_TEXTS, QuantizeOptions
from pipelines.reading import sources
from pipelines.reading.columns import check_reading
from pipelines.reading.read_plan import ReadPlan, Shard
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
    check_reading(plan)
    found = sorted(set(_spread_texts(plan, 2 * options.rows)))
    if len(found) < 2 * LEAST_TEXTS:
        raise UserError(
            f"the input has {counted(len(found), 'different text')}: give at least "
            f"{2 * LEAST_TEXTS}, half of them to calibrate the graph and half to compare"
        )
    return [found[place] for place in np.random.default_rng(0).permutation(len(found))]


def _spread_texts(plan: ReadPlan, rows: int) -> list[str]:
    """Return at most `rows` usable texts from places all over the input.

    Of CALIBRATION_SHARDS shards or more, as many give their first texts, equally many each; after a
    shard that has too few, the others give more. If there are fewer shards, or these have too few
    texts, as the files of a folder may, the texts are a sample of all.
    """
    if (count := len(plan.shards)) >= CALIBRATION_SHARDS:
        texts: list[str] = []
        shards = np.linspace(0, count, CALIBRATION_SHARDS, endpoint=False).astype(int)
        for turn, number in enumerate(shards):
            there = _texts_of(plan, [plan.shards[number]])
            texts += islice(there, (rows - len(texts)) // (CALIBRATION_SHARDS - turn))
        if len(texts) == rows:
            return texts
    return _sample(_texts_of(plan, plan.shards), rows)


def _texts_of(plan: ReadPlan, shards: Iterable[Shard]) -> Iterator[str]:
    return (text for shard in shards for piece in read(shard, plan) for text in piece.texts)


def _sample(texts: Iterable[str], rows: int) -> list[str]:
    """Return `rows` texts, each one of all with the same probability, or all if they are fewer."""
    sample, numbers = list[str](), random.Random(0)
    for place, text in enumerate(texts):
        if place < rows:
            sample.append(text)
        elif (taken := numbers.randrange(place + 1)) < rows:
            sample[taken] = text
    return sample
