"""The order of a corpus that is too large to shuffle whole.

An epoch goes through the parts of the corpus in an order drawn for it. Neighbours are put together
into windows of about `shuffle_buffer_rows` rows, and the rows of a window are shuffled together. What a
step trains on follows from the seed and the number of the step alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cotbert_core.settings import TrainSettings
from cotbert_core.training.sampling import steps_in_epoch

# Above so many rows a corpus is streamed unless the settings say otherwise. In memory a Wikipedia
# sentence of 20 tokens is 88 bytes of every worker, 4 a token and 8 for where it begins, and 158
# while it is read (benchmarks/streaming.py): 3.2 GB for so many.
MEMORY_ROWS = 20_000_000
# Rows shuffled together then: some 60 parts from anywhere in the corpus, 88 MB.
WINDOW_ROWS = 1_000_000


@dataclass(frozen=True)
class Window:
    """parts: whose rows are shuffled together, laid end to end in this order; of the shuffled rows
    those from `start` to `stop` are trained on."""

    parts: tuple[int, ...]
    seed: tuple[int, ...]
    start: int
    stop: int

    def order(self, rows: int) -> np.ndarray:
        """(stop - start,) row numbers among the `rows` of all its parts."""
        return np.random.default_rng(self.seed).permutation(rows)[self.start : self.stop]


def window_rows(settings: TrainSettings, sentences: int) -> int | None:
    """Rows that are shuffled together; None: all, in memory."""
    if settings.shuffle_buffer_rows is None and sentences > MEMORY_ROWS:
        return WINDOW_ROWS
    return settings.shuffle_buffer_rows


def windows(
    part_rows: Sequence[int], settings: TrainSettings, together: int, done: int, total: int
) -> Iterator[Window]:
    """The windows that the steps after `done` read; their rows one after another are these steps'
    global batches, which go on across the border of two windows. part_rows: rows of each part;
    together: rows of a window, about.

    The first window begins where step `done` ended, and an epoch's ragged end is left out, as it
    is of a corpus in memory.
    """
    size, rows = settings.batch_size, np.asarray(part_rows)
    per_epoch = steps_in_epoch(int(rows.sum()), size)
    for epoch in range(done // per_epoch, -(-total // per_epoch)):
        begin = max(done - epoch * per_epoch, 0) * size
        end = min(total - epoch * per_epoch, per_epoch) * size
        for number, parts in enumerate(_together(rows, (settings.seed, epoch), together)):
            count = int(rows[parts].sum())
            start, stop = max(begin, 0), min(end, count)
            if start < stop:
                # Not 0 for the first: numpy's generators of (a, b) and (a, b, 0) are one.
                seed = (settings.seed, epoch, number + 1)
                yield Window(tuple(parts.tolist()), seed, start, stop)
            begin, end = begin - count, end - count


def _together(rows: np.ndarray, seed: tuple[int, ...], together: int) -> list[np.ndarray]:
    """The parts in an order drawn from the seed, split into windows as even as parts allow."""
    order = np.random.default_rng(seed).permutation(len(rows))
    starts = np.cumsum(rows[order]) - rows[order]
    count = max(1, int(rows.sum()) // together)
    numbers = starts * count // int(rows.sum())
    return np.split(order, np.flatnonzero(np.diff(numbers)) + 1)
