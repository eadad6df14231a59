"""Time a fast path and its peer in one run, and print the ratios.

Only ratios are comparable between machines. A fast path and its peer therefore take turns
(A B A B), and each time is the median over the rounds.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cotbert_core.encoder.backbone import load_tokenizer
from cotbert_core.encoder.locations import MINILM
from cotbert_core.errors import UserError
from cotbert_core.evaluation.pairs import cosines
from cotbert_core.methods.base import Method
from cotbert_core.settings import Precision, TrainSettings
from cotbert_core.training.batches import Batch
from cotbert_core.training.devices import current_device as device
from cotbert_core.training.precision import autocast, has_fast_bf16
from cotbert_core.training.step import make_optimizer, train_step
from pipelines.reading.docstrings import documents, package_files

TEXT_PACKAGES = ("numpy", "scipy")
HEADER = ("benchmark", "ours", "peer", "ours s", "peer s", "times as fast", "target", "check")


class DisagreementError(RuntimeError):
    """The fast path and its peer do not compute the same: their times mean nothing."""


@dataclass(frozen=True)
class Row:
    """A ratio of two times.

    Seconds are medians. target: the least ratio wanted, None if there is no target. check: how it
    is known that both compute the same.
    """

    benchmark: str
    ours: str
    peer: str
    ours_seconds: float
    peer_seconds: float
    target: float | None = None
    check: str = ""

    @property
    def ratio(self) -> float:
        return self.peer_seconds / self.ours_seconds

    @property
    def met(self) -> bool:
        return self.target is None or self.ratio >= self.target

    def record(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio, "met": self.met}


def synchronize() -> None:
    """Wait until the GPU has finished, so that a time includes the work."""
    if device().type == "cuda":
        torch.cuda.synchronize()


def interleave(tasks: Mapping[str, Callable[[int], object]], rounds: int) -> dict[str, float]:
    """Return the median seconds of each task, called with 1..rounds after the caller's warm-up."""
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for number in range(1, rounds + 1):
        for name, task in tasks.items():
            synchronize()
            start = time.perf_counter()
            task(number)
            synchronize()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


# Ours, the peer, and the least ratio wanted.
Formats = Sequence[tuple[Precision, Precision, float | None]]
Step = Callable[[int], object]


def compare_formats(
    benchmark: str,
    formats: Formats,
    ours: Callable[[Precision], Step],
    released: Callable[[Precision], Step],
    rounds: int,
    check: str,
    peer_name: str = "released",
) -> list[Row]:
    """Compare both ways in the number formats of the machine, each warmed up once."""
    formats = [row for row in formats if {row[0], row[1]} <= set(number_formats())]
    tasks = {f"cotbert {own}": ours(own) for own, _, _ in formats}
    tasks |= {f"{peer_name} {peer}": released(peer) for _, peer, _ in formats}
    for task in tasks.values():
        task(0)
    seconds = interleave(tasks, rounds)
    pairs = [(f"cotbert {own}", f"{peer_name} {peer}", target) for own, peer, target in formats]
    return [
        Row(benchmark, own, peer, seconds[own], seconds[peer], target, check)
        for own, peer, target in pairs
    ]


def number_formats() -> list[Precision]:
    """Return the number formats to measure: bf16 without hardware for it takes minutes a step."""
    return ["fp32", "bf16"] if has_fast_bf16(device()) else ["fp32"]


def own_steps(method: Method, batches: Sequence[Batch]) -> Step:
    """Return training steps of a method; step n trains on batch n."""
    method.train()
    settings, total = method.settings, len(batches)
    optimizer = make_optimizer(method, settings.optimizer)
    return lambda n: train_step(method, batches[n], optimizer, settings, n + 1, total)


def plain_step(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    precision: Precision,
    loss: Callable[[], torch.Tensor],
) -> None:
    """Train a peer on one batch, with the gradient clipped at 1."""
    optimizer.zero_grad()
    with autocast(precision, device()):
        value = loss()
    value.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def loss_gap(ours: float, peer: float, most: float) -> float:
    """Return the distance of both losses of one batch; DisagreementError if it is over `most`."""
    if not abs(ours - peer) <= most:
        raise DisagreementError(f"the loss of one batch is {ours:.6f} here, {peer:.6f} of the peer")
    return abs(ours - peer)


def least_cosine(left: np.ndarray, right: np.ndarray, wanted: float) -> float:
    """Return the least cosine of each text's two vectors, (N, D) each.

    Raises DisagreementError if it is below `wanted`.
    """
    least = float(cosines(left, right).min())
    if not least >= wanted:
        raise DisagreementError(f"the least cosine of two vectors of one sentence is {least:.6f}")
    return least


def token_batches(texts: Sequence[str], count: int, size: int) -> list[Batch]:
    """Return `count` batches of `size` sentences, tokenized for all-MiniLM-L6-v2."""
    chosen = first(texts, size * count)
    tokenizer, max_length = load_tokenizer(MINILM), TrainSettings().max_length
    slices = (chosen[start : start + size] for start in range(0, len(chosen), size))
    return [Batch(tokenizer(batch, max_length)) for batch in slices]


def random_encoder(folder: Path, layers: int, width: int, heads: int) -> Path:
    """Save a BERT with the same random weights each time and all-MiniLM-L6-v2's tokenizer."""
    from transformers import BertConfig, BertModel

    tokenizer = load_tokenizer(MINILM).hf
    torch.manual_seed(0)
    size: dict[str, Any] = {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
    }
    config = BertConfig(vocab_size=len(tokenizer), intermediate_size=4 * width, **size)
    BertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def read_texts(path: Path | None) -> list[str]:
    """Return distinct sentences in a fixed random order: a file's lines, or docstrings."""
    if path is None:
        files = package_files(TEXT_PACKAGES)
        found = [s for file in files for document in documents(file) for s in document]
    elif path.is_file():
        found = [" ".join(line.split()) for line in path.read_text(encoding="utf-8").splitlines()]
    else:
        raise UserError(f"text file {str(path)!r} does not exist: give one sentence per line")
    texts = sorted(set(found) - {""})
    random.Random(0).shuffle(texts)
    return texts


def first(texts: Sequence[str], count: int) -> list[str]:
    if len(texts) < count:
        raise UserError(f"the text has {len(texts)} sentences, {count} are needed: give more")
    return list(texts[:count])


def machine() -> dict[str, Any]:
    """Return the machine and the versions of the libraries."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name() if device().type == "cuda" else "cpu",
        "bf16": has_fast_bf16(device()),
        **{name: version(name) for name in ("torch", "transformers", "sentence-transformers")},
    }


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return (names or [platform.processor()])[0] or "cpu"


def machine_line(facts: Mapping[str, Any]) -> str:
    words = {True: "yes", False: "no"}
    return ", ".join(f"{k} {words[v] if isinstance(v, bool) else v}" for k, v in facts.items())


def text_parser(name: str) -> argparse.ArgumentParser:
    """Return a parser of `python -m benchmarks.NAME` with the option --text."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}")
    parser.add_argument("--text", type=Path, help="one sentence per line (default: docstrings)")
    return parser


def markdown_line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(map(markdown_line, [header, ["---"] * len(header), *rows])) + "\n"


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a Markdown table with aligned columns."""
    cells = [HEADER, *map(_cells, rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [markdown_line(map(str.ljust, line, widths)) for line in cells]
    return "\n".join([lines[0], "|" + "|".join("-" * (w + 2) for w in widths) + "|", *lines[1:]])


def _cells(row: Row) -> tuple[str, ...]:
    wanted = "" if row.target is None else f">= {row.target:g}{'' if row.met else ' MISSED'}"
    seconds = (f"{row.ours_seconds:.3f}", f"{row.peer_seconds:.3f}")
    return (row.benchmark, row.ours, row.peer, *seconds, f"{row.ratio:.2f}", wanted, row.check)
