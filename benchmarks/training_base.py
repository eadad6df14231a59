"""Compare CoT-BERT steps of 128 sentences with a random encoder of BERT-base's shape.

The released step keeps more than 24 GiB of activations even in bf16. On a CPU both sides are
therefore measured with two small depths, each in a process of its own, and extrapolated linearly to
12 layers. Our bf16 step is also run with 12 layers, to check the extrapolation. On a GPU all steps
have 12 layers.
"""

from __future__ import annotations

import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.harness import Formats, Row, device, random_encoder, synchronize, token_batches
from benchmarks.training import loss_difference, ours, released
from cotbert_core.settings import Precision
from cotbert_core.training.batches import Batch
from cotbert_core.training.precision import has_fast_bf16

SIDES = {"cotbert": ours, "released": released}
BATCH, LAYERS, WIDTH, HEADS = 128, 12, 768, 12
DEPTHS = (1, 3)
PAIRS: Formats = (("bf16", "fp32", 5.0), ("fp32", "fp32", 2.0), ("bf16", "bf16", None))


@dataclass
class Steps:
    """The training steps of both sides. folders: an encoder by number of layers."""

    folders: dict[int, str]
    batches: Sequence[Batch]
    known: dict[tuple[str, Precision, int], float] = field(default_factory=dict)

    def at(self, side: str, precision: Precision, depth: int) -> float:
        """Return the median seconds of a step, measured in a process of its own."""
        key = (side, precision, depth)
        if key not in self.known:
            job = (side, self.folders[depth], precision, self.batches)
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                self.known[key] = pool.submit(_measure, *job).result()
        return self.known[key]

    def seconds(self, side: str, precision: Precision) -> float:
        """Return the seconds of a step with 12 layers."""
        if device().type == "cuda":
            return self.at(side, precision, LAYERS)
        return line(DEPTHS, [self.at(side, precision, depth) for depth in DEPTHS], LAYERS)


def run(texts: Sequence[str], rounds: int) -> list[Row]:
    """Return the seconds of a step in every number format of the machine."""
    batches = token_batches(texts, rounds + 1, BATCH)
    with tempfile.TemporaryDirectory() as name:
        depths = (*DEPTHS, LAYERS)
        folders = {n: str(random_encoder(Path(name) / str(n), n, WIDTH, HEADS)) for n in depths}
        steps, fast = Steps(folders, batches), has_fast_bf16(device())
        check = f"same loss to {loss_difference(folders[DEPTHS[0]], batches[0]):.0e}"
        if fast and device().type == "cpu":
            whole = steps.at("cotbert", "bf16", LAYERS)
            check += f"; {LAYERS} layers by {DEPTHS}, cotbert bf16 run whole {whole:.1f} s"
        return [
            Row(
                f"training step, BERT-base, batch {BATCH}",
                f"cotbert {own}",
                f"released {peer}",
                steps.seconds("cotbert", own),
                steps.seconds("released", peer),
                target,
                check,
            )
            for own, peer, target in PAIRS
            if fast or own == peer == "fp32"
        ]


def line(places: Sequence[int], values: Sequence[float], place: int) -> float:
    """Return the value at `place` of the straight line through two points."""
    (left, right), (low, high) = places, values
    return low + (high - low) * (place - left) / (right - left)


def _measure(side: str, encoder: str, precision: Precision, batches: Sequence[Batch]) -> float:
    step = SIDES[side](encoder, precision, batches)
    found = []
    for number in range(len(batches)):
        started = time.perf_counter()
        step(number)
        synchronize()
        found.append(time.perf_counter() - started)
    return statistics.median(found[1:])
