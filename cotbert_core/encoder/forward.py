"""Rows through an encoder in batches of like length, with or without gradient."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from cotbert_core.encoder.attention import OWN
from cotbert_core.encoder.backbone import Backbone
from cotbert_core.encoder.pooling import READOUTS
from cotbert_core.encoder.threads import map_threads
from cotbert_core.templates.wrapping import Rows
from cotbert_core.training.devices import to_device
from cotbert_core.training.gradient_cache import recomputed


@dataclass(frozen=True)
class Given:
    """A batch of n rows on the encoder's device.

    inputs: of the encoder, padded to (n, width), or packed into (1, tokens) with their offsets;
    where words were looked up, input_ids are their places among them. attended: (n, width), where
    there is no padding, on the CPU; places: (n,) positions that are read; ends: (n,) lengths;
    unpacked: (tokens,) places of packed tokens among the n * width of the padded rows, else None.
    """

    inputs: dict[str, Any]
    attended: Tensor
    places: Tensor
    ends: Tensor
    unpacked: Tensor | None


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
    pieces = budget_slices(lengths[order], batch_tokens, chunk)
    words = None
    if torch.is_grad_enabled() and len(pieces) > 1:
        rows, words = _looked_up(backbone, rows)

    def given(piece: tuple[int, int]) -> Given:
        chosen = torch.from_numpy(order[slice(*piece)])
        return _given(backbone, rows, chosen, int(lengths[order[piece[0]]]))

    def vectors_of(given: Given) -> Tensor:
        return read(_last_hidden(backbone.model, given, words), given.places, given.ends).float()

    # Dropout draws from one stream, whose order threads would make a matter of chance.
    quiet = not (torch.is_grad_enabled() or backbone.model.training)
    if quiet and backbone.device.type == "cpu" and not backbone.packs:
        vectors = map_threads(lambda piece: vectors_of(given(piece)), pieces)
    elif chunk is None:
        vectors = [vectors_of(given(piece)) for piece in pieces]
    else:
        # Both passes get the same tensors: jagged attention tells batches apart by their offsets.
        vectors = [recomputed(vectors_of, given(p), device=backbone.device) for p in pieces]
    back = torch.from_numpy(np.argsort(order, kind="stable"))
    return torch.cat(vectors)[to_device(back, backbone.device)]


def _looked_up(backbone: Backbone, rows: Rows) -> tuple[Rows, Tensor]:
    """Rows whose ids are places among their distinct tokens, and those tokens' (U, E) word vectors.

    The gradient of a lookup is as large as its table. With a lookup of the vocabulary for each
    batch, clearing and adding up those gradients took 7 % of a step of all-MiniLM-L6-v2.
    """
    distinct, places = torch.unique(rows.ids, return_inverse=True)
    words = backbone.model.get_input_embeddings()(to_device(distinct, backbone.device))
    return replace(rows, ids=places), words


def _given(backbone: Backbone, rows: Rows, chosen: Tensor, width: int) -> Given:
    """The chosen rows, of which the longest has `width` tokens, on the encoder's device."""
    device = backbone.device
    ends, ids = rows.lengths[chosen], rows.ids[chosen, :width]
    counted = torch.arange(width).expand(len(chosen), -1)
    positions = counted if rows.positions is None else rows.positions[chosen, :width]
    positions = positions + backbone.position_start
    attended = counted < ends[:, None]
    inputs: dict[str, Any] = {"input_ids": ids, "position_ids": positions}
    unpacked = None
    if backbone.packs:
        inputs = {name: padded[attended][None] for name, padded in inputs.items()}
        inputs["offsets"] = F.pad(ends.cumsum(0), (1, 0))
        # Counted here: a GPU would have to report how many there are, and the host to wait for it.
        unpacked = to_device(attended.flatten().nonzero().squeeze(1), device)
    else:
        inputs["attention_mask"] = None if bool(attended.all()) else _mask(backbone, attended)
    return Given(
        {name: None if part is None else to_device(part, device) for name, part in inputs.items()},
        attended,
        to_device(rows.readout[chosen], device),
        to_device(ends, device),
        unpacked,
    )


def _mask(backbone: Backbone, attended: Tensor) -> Tensor:
    """Return the attention mask of padded rows, in the form that makes nobody wait.

    Before `sdpa` transformers asks the device in every forward pass whether a 2-D mask hides
    anything; it takes a 4-D mask as it is. Families that build masks of another kind (sliding
    windows) keep the 2-D one.
    """
    known = backbone.attention == "sdpa" and backbone.model.config.model_type in OWN
    if known and backbone.device.type == "cuda":
        return attended[:, None, None, :].expand(-1, 1, attended.shape[1], -1)
    return attended.long()


def _last_hidden(model: Any, given: Given, words: Tensor | None) -> Tensor:
    """(n, width, D) last layer of the rows; what stands at their padding means nothing."""
    inputs = dict(given.inputs)
    if words is not None:
        inputs["inputs_embeds"] = F.embedding(inputs.pop("input_ids"), words)
    if "offsets" not in inputs:
        return cast(Tensor, model(**inputs).last_hidden_state)
    rows, width = given.attended.shape
    output: Tensor = model(**inputs, longest=width).last_hidden_state
    assert given.unpacked is not None
    padded = output.new_zeros(rows * width, output.shape[-1])
    return padded.index_copy(0, given.unpacked, output[0]).view(rows, width, -1)


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


def padding(
    lengths: np.ndarray,
    batch_tokens: int | None,
    chunk: int | None = None,
    *,
    packed: bool = False,
) -> tuple[int, int]:
    """(padding, all tokens) that `encode_rows` gives the encoder for rows of (N,) lengths."""
    if packed:
        return 0, int(lengths.sum())
    ordered = np.sort(lengths)[::-1]
    slices = budget_slices(ordered, batch_tokens, chunk)
    total = sum((stop - start) * int(ordered[start]) for start, stop in slices)
    return total - int(lengths.sum()), total
