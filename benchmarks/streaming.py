"""Measure the memory of a training worker with a held or streamed corpus.

    python -m benchmarks.streaming

`cotbert train` runs on corpora of random tokens with a small random encoder (1 layer x 32), so the
memory of the corpus is not hidden by the model's. Memory is the peak of a process, with the pages
that it shares with the object store; the reader is the task that reads the windows.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.commands import peak_mib, sets, start_command
from benchmarks.harness import machine, machine_line, random_encoder
from cotbert_core.encoder.backbone import load_tokenizer
from cotbert_core.encoder.locations import MINILM
from cotbert_core.files import write_json
from cotbert_core.templates.ragged_ids import Ragged
from pipelines.reading.data_folder import make_data_folder
from pipelines.runtime.processes import descendants
from pipelines.storage.corpus import MANIFEST_FILE, corpus_table
from pipelines.training.metrics_log import METRICS_FILE, read_rows

ROWS = (1_000_000, 3_000_000)
PART_ROWS, SHUFFLE_ROWS = 50_000, 200_000
# The rows of these steps are a little more than a window.
BATCH, STEPS = 256, 800
# The number of tokens of a row, uniformly distributed; Wikipedia has 20 on average too.
LEAST_TOKENS, MOST_TOKENS = 8, 32
WORKER, READER = b"ray::SingleWork", b"ray::Read"
SETTINGS = {
    "method.name": "simcse",
    "workers": 1,
    "batch_size": BATCH,
    "max_length": MOST_TOKENS,
    **dict.fromkeys(("templates.anchor", "templates.positive", "templates.negative"), "null"),
}


@dataclass(frozen=True)
class Trained:
    """The measurements of a run.

    start: seconds that the first step waited for data. wait, step: seconds that the other steps
    waited and took on average.
    """

    worker_mib: float
    reader_mib: float
    start: float
    wait: float
    step: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0, or 1 if a streaming worker's memory grows with the corpus."""
    options = _parser().parse_args(arguments)
    streamed = []
    print(f"{machine_line(machine())}\n")
    print(
        "| rows | corpus | worker MiB | reader MiB | first wait, s | wait, ms | of a step |\n"
        "| ---: | --- | ---: | ---: | ---: | ---: | ---: |"
    )
    for rows in sorted(options.rows):
        with tempfile.TemporaryDirectory() as name:
            home = Path(name)
            encoder = random_encoder(home / "encoder", layers=1, width=32, heads=2)
            write_corpus(home / "corpus", encoder, rows)
            steps = {"max_steps": options.steps, "eval_every": options.steps}
            print(_line(rows, "in memory", _train(home, "held", encoder, steps)))
            steps["shuffle_buffer_rows"] = SHUFFLE_ROWS
            streamed.append(_train(home, "streamed", encoder, steps))
            print(_line(rows, "streamed", streamed[-1]))
    growth = streamed[-1].worker_mib / streamed[0].worker_mib
    print(f"\nstreamed, the worker grows {growth:.2f} times (may be {options.most:.2f})")
    return 0 if growth <= options.most else 1


def write_corpus(folder: Path, encoder: Path, rows: int) -> None:
    """Write a prepared corpus of random tokens, with empty texts, for this encoder."""
    data = make_data_folder(folder)
    draw, vocabulary = np.random.default_rng(0), len(load_tokenizer(MINILM).hf)
    for number, start in enumerate(range(0, rows, PART_ROWS)):
        lengths = draw.integers(LEAST_TOKENS, MOST_TOKENS + 1, min(PART_ROWS, rows - start))
        tokens = draw.integers(1000, vocabulary, int(lengths.sum())).astype(np.int32)
        ids = pa.array(np.arange(start, start + len(lengths)))
        texts = pa.array([""] * len(lengths))
        table = corpus_table(ids, [texts], [Ragged.from_lengths(tokens, lengths)])
        pq.write_table(table, data / f"part-{number:06}.parquet", compression="zstd")
    made_for = {"encoder": str(encoder), "tokenizer_hash": load_tokenizer(str(encoder)).hash}
    content = {"format": 1, "rows": rows, "columns": [], "dropped": {}, "max_length": MOST_TOKENS}
    source = {"source": {"inputs": ["random tokens"]}, "versions": {}}
    write_json(folder / MANIFEST_FILE, {**content, **made_for, **source})


def _train(home: Path, name: str, encoder: Path, changes: dict[str, object]) -> Trained:
    """Run the command and watch the memory of its processes."""
    words = ("train", "quickstart", "--encoder", encoder, "--corpus", home / "corpus")
    given = ("--output", home / name, *sets({**SETTINGS, **changes}))
    process = start_command(home, *words, *given, stderr=subprocess.DEVNULL)
    peaks = {WORKER: 0.0, READER: 0.0}
    readers: set[int] = set()
    while process.poll() is None:
        for pid in descendants(process.pid):
            with suppress(OSError):  # it has ended meanwhile
                title = Path(f"/proc/{pid}/cmdline").read_bytes()
                if title.startswith(READER):
                    readers.add(pid)  # between two tasks it has another title
                kind = READER if pid in readers else WORKER if title.startswith(WORKER) else None
                if kind:
                    peaks[kind] = max(peaks[kind], peak_mib(pid))
        time.sleep(0.1)
    if process.returncode:
        raise RuntimeError(f"the run {name} ended with status {process.returncode}")
    rows = read_rows(home / name / METRICS_FILE)
    steps = [row for row in rows.values() if "step_seconds" in row]
    first, *others = (row["data_wait_seconds"] for row in steps)
    seconds = [row["step_seconds"] for row in steps[1:]]
    return Trained(peaks[WORKER], peaks[READER], first, fmean(others), fmean(seconds))


def _line(rows: int, corpus: str, run: Trained) -> str:
    reader = f"{run.reader_mib:,.0f}" if run.reader_mib else ""
    return (
        f"| {rows:,} | {corpus} | {run.worker_mib:,.0f} | {reader} | {run.start:.2f} "
        f"| {1000 * run.wait:.1f} | {run.wait / run.step:.1%} |"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.streaming")
    parser.add_argument(
        "--rows",
        type=int,
        nargs="+",
        default=list(ROWS),
        help="numbers of rows (default 1000000 3000000)",
    )
    parser.add_argument(
        "--steps", type=int, default=STEPS, help=f"steps of each run (default {STEPS})"
    )
    parser.add_argument(
        "--most", type=float, default=1.15, help="largest allowed growth (default 1.15)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
