"""Divide rows of unequal length into batches, each as wide as its longest row."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def budget_slices(
    lengths: np.ndarray, batch_tokens: int | None, most_rows: int | None = None
) -> list[tuple[int, int]]:
    """Return the (start, stop) slices of batches of rows, given lengths sorted from long to short.

    batch_tokens: maximum number of padded tokens in a batch; a longer row is a batch of its own.
    most_rows: maximum number of rows in a batch. None means no limit.
    """
    slices, start, most = [], 0, most_rows or len(lengths)
    while start < len(lengths):
        within = most
        if batch_tokens is not None:
            within = max(1, batch_tokens // max(1, int(lengths[start])))
        stop = start + min(within, most)
        slices.append((start, min(stop, len(lengths))))
        start = stop
    return slices


def cheapest_slices(
    lengths: np.ndarray, batch_tokens: int, start_tokens: int, most_rows: int | None = None
) -> list[tuple[int, int]]:
    """Return slices as `budget_slices` does, with the least total cost of padding and starts.

    start_tokens: fixed cost of a batch, as the number of tokens that take as long. By dynamic
    programming, the cheapest batches of rows ..stop are a last batch and the cheapest of the rows
    before it. That batch starts with the first row of its length, or is full: a row of equal
    length that moves into it from the batch before costs no more there. So the work grows with the
    distinct lengths: 2 ms for 6,000 Wikipedia sentences of 101 lengths and 16,384 tokens, where
    trying each row as a start took 80.
    """
    widths = np.maximum(lengths, 1)
    first = np.flatnonzero(np.diff(widths, prepend=-1))  # the first row of each distinct length
    width, after = widths[first], np.append(first[1:], len(widths))
    most = np.minimum(np.maximum(1, batch_tokens // width), most_rows or len(widths))

    starts: dict[int, np.ndarray] = {}  # by the end of a batch, all rows that may be its first
    ends = [len(widths)]
    while ends:
        if (stop := ends.pop()) in starts or stop == 0:
            continue
        possible = np.maximum(first, stop - most)
        starts[stop] = possible[possible < np.minimum(after, stop)]
        ends.extend(starts[stop].tolist())

    cost, start_of = {0: 0}, dict[int, int]()
    for stop in sorted(starts):
        before = np.array([cost[start] for start in starts[stop].tolist()])
        costs = before + (stop - starts[stop]) * widths[starts[stop]]
        start_of[stop] = int(starts[stop][costs.argmin()])
        cost[stop] = int(costs.min()) + start_tokens

    slices, stop = [], len(widths)
    while stop:
        slices.append((start_of[stop], stop))
        stop = start_of[stop]
    return slices[::-1]


def equal_slices(lengths: np.ndarray, batch_tokens: int) -> list[tuple[int, int]]:
    """Return the (start, stop) slices of as few batches of packed rows as have batch_tokens each,
    about equally large.

    lengths: of N > 0 rows, above 0. A batch may exceed batch_tokens by the end of a row.
    """
    ends = np.cumsum(lengths)
    batches = -(-int(ends[-1]) // batch_tokens)
    shares = np.arange(1, batches + 1) * int(ends[-1]) / batches
    stops = np.unique(np.searchsorted(ends, shares) + 1).tolist()
    return list(zip([0, *stops[:-1]], stops, strict=True))


def length_batches(
    lengths: np.ndarray,
    batch_tokens: int | None,
    start_tokens: int = 0,
    most_rows: int | None = None,
    *,
    packed: bool = False,
) -> list[tuple[Tensor, int]]:
    """Return the row numbers of each batch, from the longest rows to the shortest, and its width.

    lengths: (N,) tokens of each row, in any order. batch_tokens: maximum number of padded tokens in
    a batch, None for no limit. start_tokens: fixed cost of a batch (`cheapest_slices`); with 0 each
    batch takes as many rows as possible. most_rows: maximum number of rows in a batch. packed:
    whether batches of packed rows are to be about equally large (`equal_slices`).
    """
    order = np.argsort(-lengths, kind="stable")
    ordered = lengths[order]
    if packed and batch_tokens is not None:
        slices = equal_slices(ordered, batch_tokens)
    elif batch_tokens is None or start_tokens == 0:
        slices = budget_slices(ordered, batch_tokens, most_rows)
    else:
        slices = cheapest_slices(ordered, batch_tokens, start_tokens, most_rows)
    return [(torch.from_numpy(order[start:stop]), int(ordered[start])) for start, stop in slices]


def padding(
    lengths: np.ndarray,
    batch_tokens: int | None,
    start_tokens: int = 0,
    mini_batch_size: int | None = None,
    *,
    packed: bool = False,
) -> tuple[int, int]:
    """Return the numbers of padding tokens and of all tokens that `encode_rows` gives an encoder.

    lengths: (N,) tokens of each row; the other arguments are those of `encode_rows`.
    """
    tokens = int(lengths.sum())
    if packed:
        return 0, tokens
    batches = length_batches(lengths, batch_tokens, start_tokens, mini_batch_size)
    total = sum(len(rows) * width for rows, width in batches)
    return total - tokens, total
