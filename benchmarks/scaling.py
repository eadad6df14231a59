"""Two workers against one, a thread each, and what gathering costs: `python -m benchmarks.scaling`.

CoT-BERT steps of all-MiniLM-L6-v2 over gloo with DDP, on the same global batches. Two trainings
that know nothing of each other show what the machine itself gives two busy cores. Then the gather
of positives and hard negatives alone, forward and backward, for larger batches; its share is of a
step whose other parts grow with the batch. Not part of `make bench`: it wants two quiet cores.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from benchmarks.harness import machine, machine_line, read_texts, token_batches
from cotbert_core.backbone import MINILM, load_backbone
from cotbert_core.batch import Batch
from cotbert_core.distributed import gather_with_gradient, rank, world_size
from cotbert_core.memory import keep_freed_memory
from cotbert_core.methods import build_method
from cotbert_core.sampling import own_share
from cotbert_core.settings import TrainSettings
from cotbert_core.training import make_optimizer, train_step

BATCH, STEPS = 128, 14
# oneDNN compiles its code for every new shape of a batch, and memory grows to what the largest
# batch needs: steps that no longer change in a run of hundreds.
WARM_UP = 10
LARGE = (256, 1024, 8192)
TARGET = 0.85
GATHERED = 2  # positives and hard negatives


def main(arguments: Sequence[str] | None = None) -> int:
    """0; 1 where two workers scale worse than they should."""
    options = _parser().parse_args(arguments)
    batches = token_batches(read_texts(options.text), WARM_UP + STEPS, BATCH)
    seconds = {n: _steps(n, batches, options.precision) for n in (1, 2)}
    scaling = seconds[1]["step"] / (2 * seconds[2]["step"])
    with ThreadPoolExecutor(2) as pool:
        beside = pool.map(lambda _: _steps(1, batches, options.precision)["step"], range(2))
        limit = seconds[1]["step"] / max(beside)
    print(f"{machine_line(machine())}\n")
    for n, found in seconds.items():
        print(f"{n} worker(s) of one thread: {BATCH / found['step']:.1f} sentences/s")
    print(f"scaling {scaling:.0%} (wanted {TARGET:.0%}; two trainings apart {limit:.0%})\n")
    print("| global batch | gather, s | share of a step |\n| ---: | ---: | ---: |")
    for size in LARGE:
        gather, step = seconds[2][str(size)], seconds[2]["step"] * size / BATCH
        print(f"| {size:,} | {gather:.4f} | {gather / (gather + step):.2%} |")
    return 0 if scaling >= TARGET else 1


def _steps(workers: int, batches: Sequence[Batch], precision: str) -> dict[str, float]:
    """Median seconds of a step, and of gathers, on rank 0."""
    with tempfile.TemporaryDirectory() as name:
        output = Path(name) / "seconds.pt"
        job = (workers, batches, precision, name, str(output))
        torch.multiprocessing.spawn(_worker, job, nprocs=workers)
        return dict(torch.load(output))


def _worker(
    own: int, workers: int, batches: Sequence[Batch], precision: Any, home: str, output: str
) -> None:
    keep_freed_memory()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{home}/meet", rank=own, world_size=workers)
    settings = TrainSettings(encoder=MINILM, batch_size=BATCH, workers=workers, precision=precision)
    torch.manual_seed(0)
    method = build_method(load_backbone(MINILM), settings).train()
    model = DistributedDataParallel(method) if workers > 1 else method
    optimizer = make_optimizer(method, settings.optimizer)
    found: list[float] = []
    for number, batch in enumerate(batches, 1):
        dist.barrier()
        started = time.perf_counter()
        share = own_share(batch, rank(), workers)
        train_step(model, share, optimizer, settings, number, len(batches))
        dist.barrier()
        found.append(time.perf_counter() - started)
    seconds = {"step": statistics.median(found[WARM_UP:])}
    if world_size() > 1:
        seconds |= {str(size): _gather(size, method.backbone.hidden_size) for size in LARGE}
    if rank() == 0:
        torch.save(seconds, output)
    dist.destroy_process_group()


def _gather(size: int, width: int) -> float:
    """Median seconds of gathering what a step of this global batch gathers, and its gradient."""
    own = torch.randn(size // world_size(), width, requires_grad=True)
    found = []
    for _ in range(5):
        dist.barrier()
        started = time.perf_counter()
        for _ in range(GATHERED):
            gather_with_gradient(own).sum().backward()
        found.append(time.perf_counter() - started)
    return statistics.median(found)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling")
    parser.add_argument("--text", type=Path, help="one sentence per line (default: docstrings)")
    parser.add_argument("--precision", default="auto", choices=("auto", "bf16", "fp32"))
    return parser


if __name__ == "__main__":
    sys.exit(main())
