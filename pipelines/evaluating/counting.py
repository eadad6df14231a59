"""Encode with progress and a rate, and read the splits of a file of graded pairs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cotbert_core.evaluation import Pairs, read_pairs
from cotbert_core.evaluation.pairs import Encode
from pipelines.runtime.progress import Progress

SPLITS = ("dev", "test")
# Sentences encoded between two progress lines: enough to sort by length.
SHOWN_SENTENCES = 4096


class CountedEncode:
    """An `encode` that shows progress and counts sentences and seconds."""

    def __init__(self, encode: Encode) -> None:
        self._encode = encode
        self.sentences, self.seconds = 0, 0.0

    def __call__(self, sentences: Sequence[str]) -> np.ndarray:
        started = time.perf_counter()
        progress = Progress("evaluate", len(sentences), "sentence")
        pieces = []
        for start in range(0, len(sentences), SHOWN_SENTENCES):
            piece = sentences[start : start + SHOWN_SENTENCES]
            pieces.append(self._encode(piece))
            if len(sentences) > SHOWN_SENTENCES:
                progress.show(start + len(piece))
        self.seconds += time.perf_counter() - started
        self.sentences += len(sentences)
        return np.concatenate(pieces)

    @property
    def rate(self) -> float:
        return self.sentences / self.seconds if self.seconds else 0.0


def read_splits(path: Path) -> dict[str, Pairs]:
    """Return the dev and test splits of a pairs file, or {'all': ...} if it has no splits."""
    whole = read_pairs(path)
    with path.open(encoding="utf-8") as lines:
        halves = "split" in lines.readline().rstrip("\r\n").split("\t")
    return {name: read_pairs(path, name) for name in SPLITS} if halves else {"all": whole}
