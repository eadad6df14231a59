"""Measure how busy `cotbert embed` keeps a device: `python -m benchmarks.sleeping_device`.

The worker's encoder returns zeros and sleeps for as long as a device of R rows per second would
compute; reading, tokenizing and writing are real. R is first unlimited, which gives the rate of the
CPU's stages alone, then that rate, and half of it. A device that encodes one block while the next
one is read and the last one is written is busy nearly all of the time.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import machine, machine_line, markdown_table, read_texts, text_parser
from benchmarks.preparing import recombine
from cotbert_core.encoder.locations import MINILM
from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.templates.ragged_ids import Ragged
from pipelines.embedding.blocks import block_ranges
from pipelines.embedding.job import SHARD_BYTES
from pipelines.embedding.options import EmbedOptions
from pipelines.embedding.quantization import Storage
from pipelines.embedding.worker import BlockEmbedder, EmbedTask
from pipelines.reading import sources
from pipelines.reading.data_folder import DIGESTS_FOLDER, make_data_folder
from pipelines.runtime.cores import available_cores
from pipelines.runtime.ray_session import ray_session
from pipelines.runtime.shard_tasks import map_shards_with_actors

ROWS = 200_000


class SleepingEmbedder(BlockEmbedder):
    """An embedder whose encoder takes 1 / `rate` seconds per row."""

    def __init__(self, task: EmbedTask, threads: int, rate: float) -> None:
        super().__init__(task, threads)
        self._rate = rate

    @cached_property
    def _encoder(self) -> SentenceEncoder:
        encoder = SentenceEncoder.from_pretrained(MINILM)
        zeros = np.zeros((1, encoder.dimension), np.float32)

        def sleep(ids: Ragged, **_: Any) -> np.ndarray:
            time.sleep(len(ids) / self._rate)
            return np.repeat(zeros, len(ids), axis=0)

        encoder.encode_tokens = sleep  # type: ignore[method-assign, assignment]
        return encoder


@dataclass(frozen=True)
class Run:
    """A run of the embedder.

    calls: number of concurrent shards in the worker. device, real: rows per second. busy: share of
    the time from the first block's start to the last one's end in which the device computed.
    """

    calls: int
    device: float
    real: float

    @property
    def busy(self) -> float:
        return self.real / self.device


def embed_with(text: Path, home: Path, calls: int, rate: float) -> Run:
    """Embed a file with a device of `rate` rows per second."""
    options = EmbedOptions(MINILM, (str(text),))
    plan = sources.plan(options.inputs, options.text_column, None, SHARD_BYTES)
    encoder = SentenceEncoder.from_pretrained(MINILM)
    output, scratch = home / "output", home / "scratch"
    make_data_folder(output)
    for folder in (output / DIGESTS_FOLDER, scratch):
        folder.mkdir(parents=True)
    storage = Storage(encoder.dimension, options.dtype, normalize=False, metadata={})
    ranges = block_ranges(plan, scratch, calls)
    task = EmbedTask(options, MINILM, plan, ranges, storage, output, scratch)
    arguments = {"task": task, "threads": available_cores(), "rate": rate}
    resources = {"num_cpus": 1.0}
    for _ in map_shards_with_actors(SleepingEmbedder, arguments, len(ranges), 1, resources, calls):
        pass
    return Run(calls, rate, _rate(scratch))


def _rate(scratch: Path) -> float:
    """Return the rows per second, without the start of the worker and of its encoder."""
    records = [json.loads(path.read_text()) for path in scratch.glob("block-*.json")]
    rows = sum(record["counts"]["rows"] for record in records)
    span = max(r["ended"] for r in records) - min(r["started"] for r in records)
    return rows / span


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    runs = []
    with tempfile.TemporaryDirectory() as name, ray_session():
        home = Path(name)
        recombine(read_texts(options.text), options.rows, home / "text.txt")
        for calls in options.calls:
            free = embed_with(home / "text.txt", home / f"{calls}-free", calls, 1e9)
            runs.append(free)
            for share in (1.0, 0.5):
                place = home / f"{calls}-{share}"
                runs.append(embed_with(home / "text.txt", place, calls, free.real * share))
    print(f"{machine_line(machine())}\n\n{table(runs)}")
    return 0


def table(runs: Sequence[Run]) -> str:
    """Return the runs as a Markdown table."""
    rows = []
    for run in runs:
        limited = run.device < 1e9
        device, busy = (f"{run.device:,.0f}", f"{run.busy:.1%}") if limited else ("no limit", "")
        rows.append((str(run.calls), device, f"{run.real:,.0f}", busy))
    header = ("shards at a time", "device, rows/s", "embedded, rows/s", "busy")
    return markdown_table(header, rows)


def _parser() -> argparse.ArgumentParser:
    parser = text_parser("sleeping_device")
    parser.add_argument("--rows", type=int, default=ROWS, help=f"of each run (default {ROWS:,})")
    parser.add_argument("--calls", type=int, nargs="+", default=[1, 2, 3], help="default 1 2 3")
    return parser


if __name__ == "__main__":
    from benchmarks import sleeping_device  # Ray's workers import the class by this name

    sys.exit(sleeping_device.main())
