"""Timing a fast path against its peer in one run, and the table of the ratios.

Only ratios are of use elsewhere: seconds depend on the machine and on what else it does. Peers
therefore take turns (A B A B), and the median over the rounds is taken of each.
"""

from __future__ import annotations

import os
import platform
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
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
from cotbert_core.settings import Precision, TrainSettings
from cotbert_core.training.batches import Batch
from cotbert_core.training.devices import current_device
from cotbert_core.training.precision import has_fast_bf16
from pipelines.reading.docstrings import package_files, sentences

TEXT_PACKAGES = ("numpy", "scipy")
HEADER = ("benchmark", "ours", "peer", "ours s", "peer s", "times as fast", "target", "check")


class DisagreementError(RuntimeError):
    """The fast path and its peer do not compute the same: their times mean nothing."""


@dataclass(frozen=True)
class Row:
    """One ratio. Seconds are medians; target is the least ratio wanted, None where it is only
    shown; check says how it is known that both compute the same."""

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


def device() -> torch.device:
    return current_device()


def synchronize() -> None:
    """Wait until a GPU has done what it was given, so that a time is that of the work."""
    if device().type == "cuda":
        torch.cuda.synchronize()


def interleave(tasks: Mapping[str, Callable[[int], object]], rounds: int) -> dict[str, float]:
    """Median seconds of each task, called with 1..rounds; the caller has warmed them up."""
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
) -> list[Row]:
    """Both ways in every number format that the machine computes in, each warmed up once.

    bf16 without hardware for it would take minutes a step and show nothing.
    """
    there: list[Precision] = ["fp32", "bf16"] if has_fast_bf16(device()) else ["fp32"]
    formats = [row for row in formats if {row[0], row[1]} <= set(there)]
    own_ones, peers = (dict.fromkeys(row[side] for row in formats) for side in (0, 1))
    tasks = {f"ours {p}": ours(p) for p in own_ones}
    tasks |= {f"released {p}": released(p) for p in peers}
    for task in tasks.values():
        task(0)
    seconds = interleave(tasks, rounds)
    return [
        Row(
            benchmark,
            f"cotbert {own}",
            f"released {peer}",
            seconds[f"ours {own}"],
            seconds[f"released {peer}"],
            target,
            check,
        )
        for own, peer, target in formats
    ]


def least_cosine(left: np.ndarray, right: np.ndarray, wanted: float) -> float:
    """The least cosine of a text's two vectors, (N, D) each; DisagreementError below `wanted`."""
    least = float(cosines(left, right).min())
    if not least >= wanted:
        raise DisagreementError(f"the least cosine of two vectors of one sentence is {least:.6f}")
    return least


def token_batches(texts: Sequence[str], count: int, size: int) -> list[Batch]:
    """`count` batches of `size` sentences, tokenized for all-MiniLM-L6-v2."""
    chosen = first(texts, size * count)
    tokenizer, max_length = load_tokenizer(MINILM), TrainSettings().max_length
    slices = (chosen[start : start + size] for start in range(0, len(chosen), size))
    return [Batch(tokenizer(batch, max_length)) for batch in slices]


def random_encoder(folder: Path, layers: int, width: int, heads: int) -> Path:
    """A BERT of random weights, the same each time, with all-MiniLM-L6-v2's tokenizer."""
    from transformers import BertConfig, BertModel

    tokenizer = load_tokenizer(MINILM).hf
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
    )
    BertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def read_texts(path: Path | None) -> list[str]:
    """Distinct sentences in one fixed random order: the lines of a file, or of docstrings."""
    if path is None:
        found = [s for file in package_files(TEXT_PACKAGES) for s in sentences(file)]
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
    """What the numbers were measured on and with."""
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


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table."""
    cells = [HEADER, *map(_cells, rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in cells]
    return "\n".join([lines[0], "|" + "|".join("-" * (w + 2) for w in widths) + "|", *lines[1:]])


def _cells(row: Row) -> tuple[str, ...]:
    wanted = "" if row.target is None else f">= {row.target:g}{'' if row.met else ' MISSED'}"
    seconds = (f"{row.ours_seconds:.3f}", f"{row.peer_seconds:.3f}")
    return (row.benchmark, row.ours, row.peer, *seconds, f"{row.ratio:.2f}", wanted, row.check)
