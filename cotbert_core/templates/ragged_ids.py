"""Many token-id lists of different lengths in one flat array, without an object per sentence.

Letters: N number of lists, T total number of tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np


@dataclass(frozen=True)
class Ragged:
    """N lists of ids. flat: (T,) int32 ids of all lists. offsets: (N + 1,) int64.

    List i is flat[offsets[i]:offsets[i + 1]].
    """

    flat: np.ndarray
    offsets: np.ndarray

    @classmethod
    def from_lists(cls, lists: Sequence[Sequence[int] | np.ndarray]) -> Ragged:
        lengths = np.fromiter(map(len, lists), np.int64, len(lists))
        flat = np.fromiter(chain.from_iterable(lists), np.int32, int(lengths.sum()))
        return cls.from_lengths(flat, lengths)

    @classmethod
    def from_lengths(cls, flat: np.ndarray, lengths: np.ndarray) -> Ragged:
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        return cls(flat, offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> np.ndarray:
        return self.flat[self.offsets[index] : self.offsets[index + 1]]

    @property
    def lengths(self) -> np.ndarray:
        """The lengths of the lists, (N,) int64."""
        return np.diff(self.offsets)

    def take(self, rows: np.ndarray | Sequence[int]) -> Ragged:
        """Return the lists with the numbers `rows`, in that order."""
        rows = np.asarray(rows, np.int64)
        starts = self.offsets[rows]
        return self.spans(starts, self.offsets[rows + 1] - starts)

    def spans(self, starts: np.ndarray, lengths: np.ndarray) -> Ragged:
        """Return the lists flat[start : start + length], one for each start and length."""
        taken = Ragged.from_lengths(self.flat[:0], lengths)
        # All tokens of a list move by the same distance as its first token.
        shifts = np.repeat(starts - taken.offsets[:-1], lengths)
        return Ragged(self.flat[shifts + np.arange(len(shifts))], taken.offsets)

    def cut(self, max_length: int) -> Ragged:
        """Return the lists cut to their first `max_length` tokens; no copy if none is longer."""
        lengths = self.lengths
        if not len(self) or lengths.max() <= max_length:
            return self
        within = np.arange(len(self.flat)) - np.repeat(self.offsets[:-1], lengths)
        return Ragged.from_lengths(self.flat[within < max_length], np.minimum(lengths, max_length))


def concatenate(parts: Iterable[Ragged]) -> Ragged:
    """Return all lists of `parts`, in order."""
    parts = list(parts)
    flat = np.concatenate([p.flat for p in parts]) if parts else np.zeros(0, np.int32)
    lengths = np.concatenate([p.lengths for p in parts]) if parts else np.zeros(0, np.int64)
    return Ragged.from_lengths(flat, lengths)
