"""Rows through an encoder in batches of like length, with or without gradient."""

from __future__ import annotations

from typing import cast

import numpy as np
import torch
from torch import Tensor

from cotbert_core.backbone import Backbone
from cotbert_core.readout import READOUTS
from cotbert_core.recomputing import recomputed
from cotbert_core.threads import map_threads
from cotbert_core.wrapping import Rows


def encode_rows(
    backbone: Backbone,
    rows: Rows,
    readout: str,
    batch_tokens: int | None = None,
    chunk: int | None = None,
) -> Tensor:
    """(N, D) sentence vectors of N rows, differentiable, in the rows' order.

    Rows are sorted by length and run in batches of at most `batch_tokens` padded tokens (None:
    all at once), each no wider than its longest row, so that little is spent on padding. chunk:
    rows of a batch at most; the backward pass then computes its activations again.
    """
    lengths = rows.lengths.numpy()
    order = np.argsort(-lengths, kind="stable")
    read = READOUTS[readout]

    def vectors_of(piece: tuple[int, int]) -> Tensor:
        chosen = torch.from_numpy(order[slice(*piece)])
        hidden = _last_hidden(backbone, rows, chosen, int(lengths[order[piece[0]]]))
        places, ends = rows.readout[chosen], rows.lengths[chosen]
        return read(hidden, places.to(hidden.device), ends.to(hidden.device)).float()

    pieces = budget_slices(lengths[order], batch_tokens, chunk)
    # Dropout draws from one stream, whose order threads would make a matter of chance.
    quiet = not (torch.is_grad_enabled() or backbone.model.training)
    beside = quiet and backbone.device.type == "cpu"
    if beside:
        vectors = map_threads(vectors_of, pieces)
    elif chunk is None:
        vectors = [vectors_of(piece) for piece in pieces]
    else:
        vectors = [recomputed(vectors_of, piece) for piece in pieces]
    back = torch.from_numpy(np.argsort(order, kind="stable")).to(backbone.device)
    return torch.cat(vectors)[back]


def _last_hidden(backbone: Backbone, rows: Rows, chosen: Tensor, width: int) -> Tensor:
    """(n, width, D) last layer of the chosen rows."""
    device = backbone.device
    lengths = rows.lengths[chosen]
    full = bool((lengths == width).all())
    attended = None if full else torch.arange(width) < lengths[:, None]
    positions = (
        torch.arange(width).expand(len(chosen), -1)
        if rows.positions is None
        else rows.positions[chosen, :width]
    )
    output = backbone.model(
        input_ids=rows.ids[chosen, :width].to(device, non_blocking=True),
        attention_mask=None if attended is None else attended.long().to(device),
        position_ids=(positions + backbone.position_start).to(device),
    )
    return cast(Tensor, output.last_hidden_state)


def budget_slices(
    lengths: np.ndarray, batch_tokens: int | None, most_rows: int | None = None
) -> list[tuple[int, int]]:
    """Cut lengths sorted from long to short into runs of at most `batch_tokens` padded tokens, and
    of at most `most_rows`; None: any number.

    A row longer than the budget makes a run of its own.
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


def padding(lengths: np.ndarray, batch_tokens: int | None) -> tuple[int, int]:
    """(padding, all tokens) that `encode_rows` gives the encoder for rows of (N,) lengths."""
    ordered = np.sort(lengths)[::-1]
    slices = budget_slices(ordered, batch_tokens)
    total = sum((stop - start) * int(ordered[start]) for start, stop in slices)
    return total - int(lengths.sum()), total
