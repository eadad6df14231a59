"""Measure a large contrastive batch in mini-batches: `python -m benchmarks.gradient_cache`.

Measured are the forward and backward pass of 1,024 sentences, in one batch and in mini-batches of
64, each in a process of its own, in fp32 without dropout, with a small random encoder. Memory is
the peak during both passes minus the memory before them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.commands import peak_mib
from benchmarks.harness import (
    machine,
    machine_line,
    random_encoder,
    read_texts,
    text_parser,
    token_batches,
)
from cotbert_core.encoder.backbone import load_backbone
from cotbert_core.methods import build_method
from cotbert_core.settings import TrainSettings

BATCH, CHUNK = 1024, 64
LAYERS, WIDTH = 4, 128
MOST_DIFFERENCE, MOST_MEMORY = 1e-5, 0.25


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0, or 1 if the gradient or the memory misses its target."""
    parser = text_parser("gradient_cache")
    parser.add_argument("--pass", dest="pass_", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.pass_ is not None:
        _pass(json.loads(options.pass_))
        return 0
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        text = home / "text.txt"
        text.write_text("\n".join(read_texts(options.text)), encoding="utf-8")
        model = random_encoder(home / "model", LAYERS, WIDTH, heads=2)
        chunks = {"whole": None, f"chunks of {CHUNK} rows": CHUNK}
        found = {what: _in_a_process(home, text, model, chunk) for what, chunk in chunks.items()}
    whole, chunked = found.values()
    print(f"{machine_line(machine())}\n\n| batch of {BATCH} | MiB | seconds |\n| --- | --- | --- |")
    for what, one in found.items():
        print(f"| {what} | {one['mib']:,.0f} | {one['seconds']:.1f} |")
    difference, largest = _difference(chunked["gradient"], whole["gradient"])
    memory = chunked["mib"] / whole["mib"]
    print(
        f"\ngradient differs by at most {difference / largest:.1e} of its largest entry, "
        f"{largest:.3g}; {memory:.0%} of the memory"
    )
    return 0 if difference <= MOST_DIFFERENCE * largest and memory <= MOST_MEMORY else 1


def _difference(
    left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]
) -> tuple[float, float]:
    """Return the largest difference of two gradients, and their largest entry."""
    differences = (float((left[name] - gradient).abs().max()) for name, gradient in right.items())
    return max(differences), max(float(gradient.abs().max()) for gradient in right.values())


def _in_a_process(home: Path, text: Path, model: Path, chunk: int | None) -> dict[str, Any]:
    output = home / f"{chunk}.pt"
    job = {"text": str(text), "model": str(model), "chunk": chunk, "output": str(output)}
    command = [sys.executable, "-m", "benchmarks.gradient_cache", "--pass", json.dumps(job)]
    subprocess.run(command, check=True)
    return dict(torch.load(output))


def _pass(job: dict[str, Any]) -> None:
    """Run forward and backward; write the gradient, the seconds and the memory to a file."""
    settings = TrainSettings(
        encoder=job["model"], batch_size=BATCH, dropout=0.0, mini_batch_size=job["chunk"]
    )
    torch.manual_seed(0)
    method = build_method(load_backbone(settings.encoder, dropout=0.0), settings).train()
    batch, small = token_batches(read_texts(Path(job["text"])), 2, BATCH)
    method(small.take(torch.arange(8).numpy())).loss.backward()  # what is made at the first use
    method.zero_grad()
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets the peak
    before, started = peak_mib(os.getpid()), time.perf_counter()
    method(batch).loss.backward()
    seconds = time.perf_counter() - started
    gradient = {n: p.grad for n, p in method.named_parameters() if p.grad is not None}
    found = {"mib": peak_mib(os.getpid()) - before, "seconds": seconds, "gradient": gradient}
    torch.save(found, job["output"])


if __name__ == "__main__":
    sys.exit(main())
