"""The shuffled order of a corpus that is too large to be shuffled as a whole.

Each epoch visits the parts of the corpus in a random order. Consecutive parts form windows of about
`shuffle_buffer_rows` rows, and the rows of a window are shuffled together. The rows of a step
depend only on the seed and the step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cotbert_core.settings import TrainSettings
from cotbert_core.training.sampling import Arrange, as_shuffled, steps_in_epoch

# A corpus with more rows is streamed by default. A Wikipedia sentence of 20 tokens takes 88 bytes
# in the memory of every worker, 4 per token and 8 for its offset, and 158 while it is read
# (benchmarks/streaming.py): 3.2 GB for this number of rows.
MEMORY_ROWS = 20_000_000
# The default window of a streamed corpus: some 60 parts from anywhere in it, 88 MB.
WINDOW_ROWS = 1_000_000


@dataclass(frozen=True)
class Window:
    """Rows that are shuffled together.

    parts: parts of the corpus, concatenated in this order. seed: seed of the shuffle. start, stop:
    the range of shuffled rows to train on.
    """

    parts: tuple[int, ...]
    seed: tuple[int, ...]
    start: int
    stop: int

    def order(self, rows: int, arrange: Arrange = as_shuffled) -> np.ndarray:
        """Return the row numbers (stop - start,) in their order.

        rows: rows of all the parts. arrange: changes the order of these rows.
        """
        shuffled = np.random.default_rng(self.seed).permutation(rows)
        return arrange(shuffled)[self.start : self.stop]

    def draws(self, rows: int) -> np.ndarray:
        """Return a random number in [0, 1) for each row of the order, (stop - start,)."""
        return np.random.default_rng([*self.seed, 1]).random(rows)[self.start : self.stop]


def window_rows(settings: TrainSettings, sentences: int) -> int | None:
    """Return the number of rows of a window, or None to shuffle all rows in memory."""
    if settings.shuffle_buffer_rows is None and sentences > MEMORY_ROWS:
        return WINDOW_ROWS
    return settings.shuffle_buffer_rows


def windows(
    part_rows: Sequence[int], settings: TrainSettings, together: int, done: int, total: int
) -> Iterator[Window]:
    """Yield the windows that the steps after `done` read.

    Their rows, one after another, are the global batches of these steps; a batch may continue in
    the next window. part_rows: number of rows of each part. together: approximate number of rows in
    a window. The first window starts where step `done` ended. An incomplete last batch of an epoch
    is dropped, as for a corpus in memory.
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
                # Numbered from 1: numpy's generators seeded with (a, b) and (a, b, 0) are the same.
                seed = (settings.seed, epoch, number + 1)
                yield Window(tuple(parts.tolist()), seed, start, stop)
            begin, end = begin - count, end - count


def _together(rows: np.ndarray, seed: tuple[int, ...], together: int) -> list[np.ndarray]:
    """Return the parts in random order, split into windows with similar numbers of rows."""
    order = np.random.default_rng(seed).permutation(len(rows))
    starts = np.cumsum(rows[order]) - rows[order]
    count = max(1, int(rows.sum()) // together)
    numbers = starts * count // int(rows.sum())
    return np.split(order, np.flatnonzero(np.diff(numbers)) + 1)
