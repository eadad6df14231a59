"""Compare two workers with one, and measure the gather: `python -m benchmarks.scaling`.

The workers, of one thread each, run CoT-BERT steps of all-MiniLM-L6-v2 with DDP over gloo. One
worker and two workers take every batch in turn, so a change of the machine's speed affects both.
The gather of positives and hard negatives is then measured alone, forward and backward, for larger
batches; its share assumes that the rest of a step grows with the batch. Not part of `make bench`:
it needs two idle cores and 17 GB of memory.
"""

from __future__ import annotations

import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.harness import machine, machine_line, read_texts, text_parser, token_batches
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.encoder.locations import MINILM
from cotbert_core.methods import build_method
from cotbert_core.settings import TrainSettings
from cotbert_core.training.batches import Batch
from cotbert_core.training.distributed import gather_with_gradient, in_parallel, rank, world_size
from cotbert_core.training.memory import keep_freed_memory
from cotbert_core.training.sampling import own_share
from cotbert_core.training.step import make_optimizer, train_step

BATCH, STEPS = 128, 20
# oneDNN compiles code for every new shape of a batch, and memory grows until the largest batch
# fits, so the first steps of a run take longer.
WARM_UP = 10
LARGE = (256, 1024, 8192)
TARGET = 0.85
GATHERED = 2  # positives and hard negatives


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0, or 1 if two workers scale worse than the target."""
    parser = text_parser("scaling")
    parser.add_argument("--precision", default="auto", choices=("auto", "bf16", "fp32"))
    options = parser.parse_args(arguments)
    batches = token_batches(read_texts(options.text), WARM_UP + STEPS, BATCH)
    seconds, gathers = _measure(batches, options.precision)
    one, two = (seconds[n][WARM_UP:] for n in (1, 2))
    scaling = [a / (2 * b) for a, b in zip(one, two, strict=True)]
    step = statistics.median(two)
    low, middle, high = statistics.quantiles(scaling, n=4)
    print(f"{machine_line(machine())}\n")
    print(f"1 worker of one thread:  {BATCH / statistics.median(one):.1f} sentences/s")
    print(f"2 workers of one thread: {BATCH / step:.1f} sentences/s")
    print(
        f"scaling {middle:.0%}, median of {STEPS} steps (half of them {low:.0%} to {high:.0%}); "
        f"wanted {TARGET:.0%}\n"
    )
    print("| global batch | gather, s | share of a step |\n| ---: | ---: | ---: |")
    for size, gather in gathers.items():
        print(f"| {size:,} | {gather:.4f} | {gather / (gather + step * size / BATCH):.2%} |")
    return 0 if middle >= TARGET else 1


def _measure(
    batches: Sequence[Batch], precision: str
) -> tuple[dict[int, list[float]], dict[int, float]]:
    """Return the seconds of every step by number of workers, and of gathers on rank 0 of two."""
    with tempfile.TemporaryDirectory() as home:
        crews = {n: [_start(own, n, batches, precision, home) for own in range(n)] for n in (1, 2)}
        seconds: dict[int, list[float]] = {n: [] for n in crews}
        for number in range(1, len(batches) + 1):
            for n, crew in crews.items():
                seconds[n].append(max(_ask(crew, number)))
        _ask(crews[1], None)
        return seconds, _ask(crews[2], None)[0]


def _ask(crew: Sequence[Connection], what: int | None) -> list[Any]:
    """Return the answers of all workers of a crew; EOFError if one has died."""
    for worker in crew:
        worker.send(what)
    return [worker.recv() for worker in crew]


def _start(own: int, workers: int, *job: Any) -> Connection:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    context.Process(target=_worker, args=(there, own, workers, *job), daemon=True).start()
    there.close()
    return here


def _worker(
    asked: Connection, own: int, workers: int, batches: Sequence[Batch], precision: Any, home: str
) -> None:
    """Run the step of each number received; at None, the gathers."""
    keep_freed_memory()
    torch.set_num_threads(1)
    meet = f"file://{home}/{workers}"
    dist.init_process_group("gloo", init_method=meet, rank=own, world_size=workers)
    settings = TrainSettings(encoder=MINILM, batch_size=BATCH, workers=workers, precision=precision)
    torch.manual_seed(0)
    method = build_method(load_backbone(MINILM), settings).train()
    model = in_parallel(method)
    optimizer = make_optimizer(method, settings.optimizer)
    for number in iter(asked.recv, None):
        dist.barrier()
        started = time.perf_counter()
        share = own_share(batches[number - 1], rank(), workers)
        train_step(model, share, optimizer, settings, number, len(batches))
        dist.barrier()
        asked.send(time.perf_counter() - started)
    sizes = LARGE if workers > 1 else ()
    asked.send({size: _gather(size, method.backbone.hidden_size) for size in sizes})
    dist.destroy_process_group()


def _gather(size: int, width: int) -> float:
    """Return the median seconds of a step's gathers for this global batch, and their gradient."""
    own = torch.randn(size // world_size(), width, requires_grad=True)
    found = []
    for _ in range(5):
        dist.barrier()
        started = time.perf_counter()
        for _ in range(GATHERED):
            gather_with_gradient(own).sum().backward()
        found.append(time.perf_counter() - started)
    return statistics.median(found)


if __name__ == "__main__":
    sys.exit(main())
