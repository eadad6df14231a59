"""Measure how memory and time of `cotbert embed` grow with the number of rows.

    python -m benchmarks.embedding_at_scale

Each number of rows is a run of the command, on sentences made of the halves of others. The random
encoder is small (2 layers x 64), so a million rows take minutes and the memory of the pipeline is
not hidden by the model's. Not part of `make bench`, which must be short.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.commands import peak_mib, start_command
from benchmarks.embedding_under_kills import WORKER
from benchmarks.harness import (
    DisagreementError,
    machine,
    machine_line,
    markdown_table,
    random_encoder,
    read_texts,
    text_parser,
)
from benchmarks.preparing import recombine
from pipelines.runtime.processes import descendants, filter_by_title

ROWS = (100_000, 1_000_000)
# Allowed growth from the smallest to the largest run.
MOST_MEMORY, MOST_TIME = 1.15, 1.10
SCALES = {"driver_peak_mib": MOST_MEMORY, "worker_peak_mib": MOST_MEMORY, "us_per_row": MOST_TIME}


@dataclass(frozen=True)
class Embedded:
    """A run. us_per_row: microseconds per row, without the start of the workers."""

    rows: int
    us_per_row: float
    driver_peak_mib: float
    worker_peak_mib: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0, or 1 if a figure grows by more than allowed."""
    options = _parser().parse_args(arguments)
    texts = read_texts(options.text)
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        model = random_encoder(home / "model", layers=2, width=64, heads=2)
        runs = [_embed(home, model, texts, rows, options.workers) for rows in sorted(options.rows)]
    print(f"{machine_line(machine())}\n\n{table(runs)}")
    return 0 if all(growth <= most for _, growth, most in growths(runs)) else 1


def _embed(home: Path, model: Path, texts: Sequence[str], rows: int, workers: int) -> Embedded:
    text, output = home / f"{rows}.txt", home / f"vectors-{rows}"
    recombine(texts, rows, text)
    words = (model, "--input", text, "--output", output, "--workers", workers)
    job, driver, worker = start_command(home, "embed", *words), 0.0, 0.0
    while job.poll() is None:
        driver = max(driver, peak_mib(job.pid))
        worker = max([worker, *map(peak_mib, filter_by_title(descendants(job.pid), WORKER))])
        time.sleep(0.1)
    if job.returncode:
        raise DisagreementError(f"embed ended with status {job.returncode}")
    result: dict[str, Any] = json.loads((output / "result.json").read_text(encoding="utf-8"))
    return Embedded(result["rows"], 1e6 / result["sentences_per_second"], driver, worker)


def growths(runs: Sequence[Embedded]) -> list[tuple[str, float, float]]:
    """Return (figure, ratio of the largest run's to the smallest's, allowed ratio)."""
    first, last = runs[0], runs[-1]
    return [(k, getattr(last, k) / getattr(first, k), most) for k, most in SCALES.items()]


def table(runs: Sequence[Embedded]) -> str:
    """Return the runs and their growth as Markdown."""
    figures = ((r.rows, r.us_per_row, r.driver_peak_mib, r.worker_peak_mib) for r in runs)
    rows = [[f"{round(figure):,}" for figure in some] for some in figures]
    growth_lines = [
        f"{name} grows {growth:.2f} times (may be {most:.2f}){'' if growth <= most else ' MISSED'}"
        for name, growth, most in growths(runs)
    ]
    header = ("rows", "us per row", "driver MiB", "worker MiB")
    return "\n".join([markdown_table(header, rows), *growth_lines])


def _parser() -> argparse.ArgumentParser:
    parser = text_parser("embedding_at_scale")
    parser.add_argument(
        "--rows",
        type=int,
        nargs="+",
        default=list(ROWS),
        help="numbers of rows (default 100000 1000000)",
    )
    parser.add_argument("--workers", type=int, default=1, help="workers of each run (default 1)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
