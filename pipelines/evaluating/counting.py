"""Encode with progress and a rate, and read the splits of a file of graded pairs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from cotbert_core.errors import UserError
from cotbert_core.evaluation.pairs import Encode, Pairs, Row, pair_rows, pairs_of
from pipelines.runtime.progress import Progress, say

SPLITS = ("dev", "test")
# Sentences encoded between two progress lines: enough to sort by length.
SHOWN_SENTENCES = 4096


class EncodeCounter:
    """The sentences and seconds of the functions that it wraps, which show progress."""

    def __init__(self) -> None:
        self.sentences, self.seconds = 0, 0.0

    def wrap(self, encode: Encode) -> Encode:
        """Return `encode` with progress and counts."""
        return partial(self._counted, encode)

    def _counted(self, encode: Encode, sentences: Sequence[str]) -> np.ndarray:
        started = time.perf_counter()
        progress = Progress("evaluate", len(sentences), "sentence")
        pieces = []
        for start in range(0, len(sentences), SHOWN_SENTENCES):
            piece = sentences[start : start + SHOWN_SENTENCES]
            pieces.append(encode(piece))
            if len(sentences) > SHOWN_SENTENCES:
                progress.show(start + len(piece))
        self.seconds += time.perf_counter() - started
        self.sentences += len(sentences)
        return np.concatenate(pieces)

    @property
    def rate(self) -> float:
        return self.sentences / self.seconds if self.seconds else 0.0


def read_splits(path: Path) -> dict[str, Pairs]:
    """Return the rows of a pairs file by split, dev and test, or {'all': ...} without splits.

    A warning counts the rows of other splits, which are left out.
    """
    groups: dict[str | None, list[Row]] = {}
    for row in (rows := pair_rows(path)):
        groups.setdefault(row[1].get("split"), []).append(row)
    if set(groups) <= {None}:
        return {"all": pairs_of(path, rows)}
    others = ", ".join(f"{len(g):,} {name!r}" for name, g in groups.items() if name not in SPLITS)
    if not any(name in groups for name in SPLITS):
        raise UserError(
            f"pairs file {str(path)!r} has rows of the splits {others}, and only dev and test are "
            "scored: rename one, or leave the column out"
        )
    if others:
        say(f"warning: {path}: rows of other splits than dev and test are left out: {others}")
    return {name: pairs_of(path, groups[name]) for name in SPLITS if name in groups}
