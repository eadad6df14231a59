"""Kill the processes of `cotbert embed`, and check its output.

    python -m benchmarks.embedding_under_kills

Three runs are compared with an undisturbed one. In the first, workers and the driver are killed in
turn (SIGKILL) at random moments, and the command is repeated when the driver was killed. The second
is the same with `--update` of the embeddings of the first half of the text. In the third, a worker
is killed every 20 seconds for three minutes. Each run must end with every id once and with the
vectors of the undisturbed run. Not part of `make bench`, which must be short.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.commands import kill_first, start_command
from benchmarks.harness import (
    DisagreementError,
    least_cosine,
    machine,
    machine_line,
    random_encoder,
    read_texts,
    text_parser,
)
from benchmarks.preparing import recombine
from cotbert_core.encoder.locations import MINILM
from pipelines.embedding.embed import read_embeddings
from pipelines.reading.data_folder import DATA_FOLDER
from pipelines.runtime.processes import descendants, filter_by_title

WORKER = "ray::MapWorker"
# Kills do not change the blocks, and equal blocks give equal batches.
LEAST_COSINE = 0.999999
# An update encodes other texts together, which bf16 rounds otherwise (benchmarks/updating.py).
LEAST_COSINE_OF_UPDATE = 0.9999


@dataclass(frozen=True)
class Ended:
    """A finished run. seconds: from the first start of the command to its last end."""

    what: str
    seconds: float
    kills: int
    rows: int

    def line(self) -> str:
        rate = self.rows / self.seconds
        return f"| {self.what} | {self.kills} | {self.rows:,} | {self.seconds:.0f} | {rate:.0f} |"


class EmbedProcess:
    """A `cotbert embed` process, which can be killed and started again."""

    def __init__(self, model: str, text: Path, output: Path, *more: str) -> None:
        self._words = ("embed", model, "--input", text, "--output", output, *more)
        self._output = output
        self.begin()

    def begin(self) -> None:
        self._process = start_command(self._output.parent, *self._words, stderr=subprocess.DEVNULL)

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def kill_worker(self) -> bool:
        """Kill a worker; return whether there was one."""
        return kill_first(filter_by_title(descendants(self._process.pid), WORKER))

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


def undisturbed(process: EmbedProcess, rows: int) -> Ended:
    started = time.monotonic()
    process.wait()
    return Ended("undisturbed", time.monotonic() - started, 0, rows)


def at_moments(
    what: str, process: EmbedProcess, rows: int, blocks: Sequence[int], long: float, seed: int
) -> Ended:
    """Kill a worker and the driver in turn, each at a random moment of one of `blocks`.

    long: approximate seconds of a block.
    """
    draw = random.Random(seed)
    started, done = time.monotonic(), 0
    for after in blocks:
        while process.running and process.blocks() < after:
            time.sleep(0.05)
        time.sleep(draw.uniform(0.0, long))
        kill = process.kill_driver if done % 2 else process.kill_worker
        while process.running and not kill():
            time.sleep(0.05)
        done += process.running
    process.wait()
    if not done:
        raise RuntimeError(f"{what}: the run ended before the first kill")
    return Ended(what, time.monotonic() - started, done, rows)


def every(process: EmbedProcess, rows: int, seconds: float, long: float) -> Ended:
    """Kill a worker every `seconds` seconds, for `long` seconds."""
    started, done = time.monotonic(), 0
    while process.running and time.monotonic() - started < long:
        time.sleep(seconds)
        done += process.running and process.kill_worker()
    process.wait()
    what = f"a worker killed every {seconds:.0f} s for {long:.0f} s"
    return Ended(what, time.monotonic() - started, done, rows)


def check(output: Path, expected: Path, least: float = LEAST_COSINE) -> None:
    """Raise DisagreementError unless every id is there once, with the same vector.

    least: the least cosine of two vectors of an id.
    """
    (ids, vectors), (wanted, right) = read_embeddings(output), read_embeddings(expected)
    if sorted(ids.tolist()) != sorted(wanted.tolist()) or len(set(ids.tolist())) != len(ids):
        raise DisagreementError(f"{output.name}: ids are missing, or there twice")
    least_cosine(vectors[np.argsort(ids)], right[np.argsort(wanted)], least)
    if not json.loads((output / "result.json").read_text(encoding="utf-8"))["rows"] == len(wanted):
        raise DisagreementError(f"{output.name}: result.json counts other rows")


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    texts = read_texts(options.text)
    with tempfile.TemporaryDirectory() as name:
        runs = _runs(options, texts, Path(name))
    print(f"{machine_line(machine())}\n")
    print(
        "| run | kills | rows | seconds | rows/s, starts included |\n| --- " + "| ---: " * 4 + "|"
    )
    print("\n".join(run.line() for run in runs))
    return 0


def _runs(options: argparse.Namespace, texts: Sequence[str], home: Path) -> list[Ended]:
    text, half, quiet = home / "text.txt", home / "half.txt", home / "quiet"
    rows: int = options.rows
    recombine(texts, rows, text)
    lines = text.read_text(encoding="utf-8").splitlines(keepends=True)
    half.write_text("".join(lines[: len(lines) // 2]), encoding="utf-8")
    small = options.small and random_encoder(home / "model", layers=4, width=256, heads=4)
    model = str(small or MINILM)
    runs = [undisturbed(EmbedProcess(model, text, quiet), rows)]
    undisturbed(EmbedProcess(model, half, home / "old"), len(lines) // 2)
    count = sum(1 for _ in (quiet / DATA_FOLDER).glob("part-*"))
    long, draw = runs[0].seconds / count, random.Random(options.seed)
    blocks = sorted(draw.sample(range(count), min(options.kills, count)))
    # Without --workers an update of this size runs in the command's process: no worker to kill.
    update = ("--update", str(home / "old"), "--workers", "1")
    for what, more in {"killed": (), "update killed": update}.items():
        killed = home / what.replace(" ", "-")
        process = EmbedProcess(model, text, killed, *more)
        runs.append(
            at_moments(f"{what} at random moments", process, rows, blocks, long, options.seed)
        )
        check(killed, quiet, LEAST_COSINE_OF_UPDATE if more else LEAST_COSINE)
    chaos = home / "chaos"
    runs.append(every(EmbedProcess(model, text, chaos), rows, options.every, options.long))
    check(chaos, quiet)
    return runs


def _parser() -> argparse.ArgumentParser:
    parser = text_parser("embedding_under_kills")
    parser.add_argument(
        "--rows", type=int, default=60_000, help="rows of each run (default 60,000)"
    )
    parser.add_argument("--kills", type=int, default=5, help="number of kills (default 5)")
    small = "embed with a small random encoder instead of all-MiniLM-L6-v2"
    parser.add_argument("--small", action="store_true", help=small)
    parser.add_argument(
        "--every", type=float, default=20.0, help="seconds between kills (default 20)"
    )
    parser.add_argument(
        "--long", type=float, default=180.0, help="seconds of these kills (default 180)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the moments (default 0)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
