"""`cotbert embed` while its processes are killed: `python -m benchmarks.embedding_under_kills`.

Two runs against an undisturbed one, of the command as a user types it. In the first, workers and
the driver are killed in turn (-9) at random moments, and after the driver's death the command is
given again. In the second a worker is killed every 20 seconds for three minutes. Each must end with
every id once and the undisturbed run's vectors. Not part of `make bench`, which must be short.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.harness import DisagreementError, least_cosine, machine, machine_line, read_texts
from benchmarks.preparing import recombine
from cotbert_core.encoder.locations import MINILM
from pipelines.embed import read_embeddings
from pipelines.reading.pieces import PIECE_ROWS
from pipelines.runtime.processes import descendants, filter_by_title

WORKER = "ray::MapWorker"
# Batches differ by what else is in a block, never by kills: the blocks are the same.
LEAST_COSINE = 0.999999
# A random kill comes within this many seconds after the previous block; a block takes about 10 s.
WITHIN_SECONDS = 8.0


@dataclass(frozen=True)
class Ended:
    """seconds: from the first start of the command to its last end."""

    what: str
    seconds: float
    kills: int
    rows: int

    def line(self) -> str:
        rate = self.rows / self.seconds
        return f"| {self.what} | {self.kills} | {self.rows:,} | {self.seconds:.0f} | {rate:.0f} |"


class EmbedProcess:
    """A `cotbert embed` process, which can be killed and started again."""

    def __init__(self, text: Path, output: Path) -> None:
        self._words = ["embed", MINILM, "--input", str(text), "--output", str(output)]
        self._output = output
        self.begin()

    def begin(self) -> None:
        store = {"MLFLOW_TRACKING_URI": f"sqlite:///{self._output.parent / 'mlflow.db'}"}
        command = [sys.executable, "-m", "pipelines.cli", *self._words]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(command, env={**os.environ, **store}, **quiet)

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def kill_worker(self) -> bool:
        """Kill a worker; return whether there was one."""
        for pid in filter_by_title(descendants(self._process.pid), WORKER):
            with suppress(OSError):  # it has ended meanwhile
                os.kill(pid, signal.SIGKILL)
                return True
        return False

    def kill_driver(self) -> bool:
        self._process.kill()
        self._process.wait()
        self.begin()
        return True

    def blocks(self) -> int:
        """Return the number of blocks that are done."""
        parts = self._output.parent.glob(f"{self._output.name}.partial/*/scratch/block-*.json")
        return sum(1 for _ in parts)

    def wait(self) -> None:
        if self._process.wait() != 0:
            raise DisagreementError(f"the job ended with status {self._process.returncode}")


def undisturbed(text: Path, output: Path, rows: int) -> Ended:
    started = time.monotonic()
    EmbedProcess(text, output).wait()
    return Ended("undisturbed", time.monotonic() - started, 0, rows)


def at_moments(text: Path, output: Path, rows: int, kills: int, seed: int) -> Ended:
    """Kill a worker and the driver in turn, each within a randomly chosen block."""
    draw = random.Random(seed)
    blocks = rows // PIECE_ROWS
    process, started, done = EmbedProcess(text, output), time.monotonic(), 0
    for after in sorted(draw.sample(range(blocks), min(kills, blocks))):
        while process.running and process.blocks() < after:
            time.sleep(0.05)
        time.sleep(draw.uniform(0.0, WITHIN_SECONDS))
        kill = process.kill_driver if done % 2 else process.kill_worker
        while process.running and not kill():
            time.sleep(0.05)
        done += 1
    process.wait()
    return Ended("killed at random moments", time.monotonic() - started, done, rows)


def every(text: Path, output: Path, rows: int, seconds: float, long: float) -> Ended:
    """Kill a worker every `seconds` seconds, for `long` seconds."""
    process, started, done = EmbedProcess(text, output), time.monotonic(), 0
    while process.running and time.monotonic() - started < long:
        time.sleep(seconds)
        done += process.running and process.kill_worker()
    process.wait()
    what = f"a worker killed every {seconds:.0f} s for {long:.0f} s"
    return Ended(what, time.monotonic() - started, done, rows)


def check(output: Path, expected: Path) -> None:
    """DisagreementError unless every id is there once, with the same vector."""
    (ids, vectors), (wanted, right) = read_embeddings(output), read_embeddings(expected)
    if sorted(ids.tolist()) != sorted(wanted.tolist()) or len(set(ids.tolist())) != len(ids):
        raise DisagreementError(f"{output.name}: ids are missing, or there twice")
    least_cosine(vectors[np.argsort(ids)], right[np.argsort(wanted)], LEAST_COSINE)
    if not json.loads((output / "result.json").read_text(encoding="utf-8"))["rows"] == len(wanted):
        raise DisagreementError(f"{output.name}: result.json counts other rows")


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    texts = read_texts(options.text)
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        text, quiet, killed, chaos = (home / n for n in ("text.txt", "quiet", "killed", "chaos"))
        recombine(texts, options.rows, text)
        runs = [undisturbed(text, quiet, options.rows)]
        runs.append(at_moments(text, killed, options.rows, options.kills, options.seed))
        check(killed, quiet)
        runs.append(every(text, chaos, options.rows, options.every, options.long))
        check(chaos, quiet)
    print(f"{machine_line(machine())}\n")
    print(
        "| run | kills | rows | seconds | rows/s, starts included |\n| --- " + "| ---: " * 4 + "|"
    )
    print("\n".join(run.line() for run in runs))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.embedding_under_kills")
    parser.add_argument("--rows", type=int, default=60_000, help="of each run (default 60,000)")
    parser.add_argument("--kills", type=int, default=5, help="kills at random moments (default 5)")
    parser.add_argument("--every", type=float, default=20.0, help="seconds (default 20)")
    parser.add_argument("--long", type=float, default=180.0, help="seconds (default 180)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments (default 0)")
    parser.add_argument("--text", type=Path, help="one sentence per line (default: docstrings)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
