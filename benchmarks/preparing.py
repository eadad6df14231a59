"""Compare `cotbert prepare` with the bare fast tokenizer, to show the cost of its other steps.

Both use all cores and the same file of a million lines. The lines are made of the halves of others,
so nearly all differ; one line in twenty is a duplicate.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from benchmarks.commands import peak_mib, start_command
from benchmarks.harness import DisagreementError, Row
from cotbert_core.encoder.backbone import load_tokenizer
from cotbert_core.encoder.locations import MINILM
from cotbert_core.settings import TrainSettings

LINES = 1_000_000
REPEATED = 0.05
TARGET = 0.6
# Twice the rows may take at most this many times as long.
MOST_GROWTH = 2.2
MOST_DRIVER_GIB = 1.5
BATCH = 10_000


@dataclass(frozen=True)
class Prepared:
    """A run of the command: its result.json, its seconds and the driver's peak memory."""

    result: dict[str, Any]
    seconds: float
    driver_gib: float


def run(texts: Sequence[str], rounds: int) -> list[Row]:
    """Return the seconds for a million lines and for two million.

    Ours are those of the job in result.json, which include the start of its workers, and those of
    the whole command with all imports and Ray's start.
    """
    jobs: list[Prepared] = []
    bare: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        text, double = home / "text.txt", home / "double.txt"
        recombine(texts, LINES, text)
        recombine(texts, 2 * LINES, double)
        distinct, tokens = _count(text)
        for number in range(rounds):
            jobs.append(_prepare(text, home / f"corpus-{number}"))
            bare.append(_tokenize(text))
        _check(jobs[0].result, home / "corpus-0", distinct, tokens)
        twice = _prepare(double, home / "twice")
    seconds = statistics.median(job.result["seconds"] for job in jobs)
    whole = statistics.median(job.seconds for job in jobs)
    peer, what = statistics.median(bare), f"prepare {LINES:,} lines"
    memory = max(job.driver_gib for job in (*jobs, twice))
    if memory > MOST_DRIVER_GIB:
        raise DisagreementError(f"the driver took {memory:.2f} GiB, over {MOST_DRIVER_GIB}")
    return [
        Row(what, "prepare, the job", "fast tokenizer", seconds, peer, TARGET, "same tokens"),
        Row(what, "prepare, the command", "fast tokenizer", whole, peer, None, "same tokens"),
        Row(
            "twice the rows",
            f"{2 * LINES:,} lines",
            f"{LINES:,} lines",
            twice.result["seconds"],
            seconds,
            round(1 / MOST_GROWTH, 3),
            f"driver {memory:.2f} GiB at most",
        ),
    ]


def recombine(texts: Sequence[str], count: int, path: Path) -> None:
    """Write `count` lines: the first half of one text and the second half of another.

    One line in twenty repeats an earlier one, which repeats none.
    """
    draw = np.random.default_rng(0)
    words = [text.split() for text in texts]
    heads = [" ".join(w[: len(w) // 2]) for w in words]
    tails = [" ".join(w[len(w) // 2 :]) for w in words]
    pairs = draw.integers(len(texts), size=(count, 2))
    repeated = draw.random(count) < REPEATED
    repeated[0] = False
    first, places = np.flatnonzero(~repeated), np.flatnonzero(repeated)
    earlier = np.searchsorted(first, places)
    pairs[places] = pairs[first[(draw.random(len(places)) * earlier).astype(int)]]
    with path.open("w", encoding="utf-8") as file:
        file.writelines(f"{heads[a]} {tails[b]}\n" for a, b in pairs.tolist())


def _prepare(text: Path, output: Path) -> Prepared:
    started, peak = time.perf_counter(), 0.0
    words = ("prepare", "--encoder", MINILM, "--input", text, "--output", output)
    job = start_command(output.parent, *words)
    while job.poll() is None:
        peak = max(peak, peak_mib(job.pid) / 1024)
        time.sleep(0.1)
    seconds = time.perf_counter() - started
    if job.returncode:
        raise DisagreementError(f"prepare ended with {job.returncode}")
    return Prepared(json.loads((output / "result.json").read_text()), seconds, peak)


def _bare() -> Tokenizer:
    backend = load_tokenizer(MINILM).hf.backend_tokenizer
    backend.no_padding()
    backend.enable_truncation(TrainSettings().max_length)
    return backend


def _tokenize(text: Path) -> float:
    backend = _bare()
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    started = time.perf_counter()
    with text.open(encoding="utf-8") as lines:
        while batch := list(islice(lines, BATCH)):
            backend.encode_batch_fast(batch, add_special_tokens=False)
    return time.perf_counter() - started


def _count(text: Path) -> tuple[int, int]:
    """Return the number of distinct sentences in the file, and of their tokens after truncation."""
    backend = _bare()
    sentences = list({" ".join(line.split()) for line in text.open(encoding="utf-8")} - {""})
    tokens = 0
    for start in range(0, len(sentences), BATCH):
        batch = sentences[start : start + BATCH]
        tokens += sum(
            len(e.ids) for e in backend.encode_batch_fast(batch, add_special_tokens=False)
        )
    return len(sentences), tokens


def _check(result: dict[str, Any], corpus: Path, distinct: int, tokens: int) -> None:
    manifest = json.loads((corpus / "manifest.json").read_text())
    found = result["rows"], manifest["tokens"]
    if found != (distinct, tokens):
        raise DisagreementError(
            f"prepare kept {found[0]} rows of {found[1]} tokens, the tokenizer makes {tokens} of "
            f"{distinct} distinct lines"
        )
