"""Template denoising: the vector that the empty template gives, to subtract (docs/methods.md).

The bias depends on the template and the sentence's token count n alone, so one short row per
distinct n is all that is ever computed; the papers' code runs every length up to 80 tokens for
every template at every step. Letters: K distinct lengths, L tokens, D hidden size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from cotbert_core.encoder.backbone import Backbone
from cotbert_core.encoder.forward import encode_rows
from cotbert_core.errors import unknown
from cotbert_core.method_settings import Denoise, PadPositions
from cotbert_core.templates.wrapping import BoundTemplate, Rows
from cotbert_core.training.devices import to_device
from cotbert_core.training.distributed import gather_with_gradient, rank, union, world_size

BiasRows = Callable[[BoundTemplate, np.ndarray, PadPositions, int], Rows]


def _position_rows(
    template: BoundTemplate, lengths: np.ndarray, pad_positions: PadPositions, position_start: int
) -> Rows:
    """PromptBERT section 4.3: the bare template, positions after the slot moved on by n.

    released: position ids from 0, though RoBERTa's filled rows begin at `position_start`.
    """
    bare = template.wrap_pads(np.zeros_like(lengths))
    width = bare.ids.shape[1]
    after_slot = torch.arange(width) >= len(template.before)
    shifts = torch.from_numpy(lengths)[:, None] * after_slot
    first = -position_start if pad_positions == "released" else 0
    return Rows(bare.ids, bare.lengths, bare.readout, first + torch.arange(width) + shifts)


def _pad_rows(
    template: BoundTemplate, lengths: np.ndarray, pad_positions: PadPositions, position_start: int
) -> Rows:
    """CoT-BERT section 3.3: n attended [PAD] tokens in the slot.

    aligned: every token sits where it sits in the filled template. released: where transformers
    puts it when no position ids are given: RoBERTa then skips pads, BERT does not.
    """
    rows = template.wrap_pads(lengths)
    if pad_positions == "aligned" or position_start == 0:
        return rows
    solid = rows.ids != template.pad_id
    counted = torch.cumsum(solid, dim=1) - 1
    return Rows(rows.ids, rows.lengths, rows.readout, torch.where(solid, counted, -1))


DENOISERS: dict[str, BiasRows] = {"position": _position_rows, "pad": _pad_rows}


def _empty_rows(
    backbone: Backbone,
    template: BoundTemplate,
    lengths: np.ndarray,
    mode: Denoise,
    pad_positions: PadPositions,
) -> Rows:
    """One row of the empty template for each length."""
    if mode not in DENOISERS:
        raise unknown("denoising mode", mode, DENOISERS)
    return DENOISERS[mode](template, lengths, pad_positions, backbone.position_start)


def bias_rows(
    backbone: Backbone,
    template: BoundTemplate,
    lengths: np.ndarray,
    mode: Denoise,
    pad_positions: PadPositions = "aligned",
) -> tuple[Rows, np.ndarray]:
    """Rows of the empty template for the K distinct values of `lengths` (N,), and (N,) indices
    into them."""
    distinct, which = np.unique(np.asarray(lengths, np.int64), return_inverse=True)
    return _empty_rows(backbone, template, distinct, mode, pad_positions), which


def shared_bias_rows(
    backbone: Backbone,
    template: BoundTemplate,
    lengths: np.ndarray,
    mode: Denoise,
    pad_positions: PadPositions,
    limit: int,
) -> tuple[Rows, np.ndarray]:
    """This worker's share of the rows for the K distinct lengths of all workers, and (N,) indices
    into the vectors that gather_biases gives.

    limit: no length is above it. Each share has as many rows, the last may hold one twice; dealt
    out there and back (0, 1, 1, 0), since one way the last worker would have the longest ones.
    """
    workers = world_size()
    distinct = union(lengths, limit)
    turn, whose = np.divmod(np.arange(len(distinct)), workers)
    whose = np.where(turn % 2, workers - 1 - whose, whose)
    each = -(-len(distinct) // workers)
    own = distinct[whose == rank()]
    rows = _empty_rows(
        backbone,
        template,
        np.resize(own if len(own) else distinct[:1], each),
        mode,
        pad_positions,
    )
    place = np.searchsorted(distinct, lengths)
    return rows, whose[place] * each + turn[place]


def gather_biases(shares: Sequence[Tensor]) -> list[Tensor]:
    """(k, D) of this worker for each template -> (W * k, D) of all workers, with gradient."""
    return [gather_with_gradient(share) for share in shares]


def template_bias(
    encoder: Backbone,
    template: BoundTemplate,
    lengths: np.ndarray,
    mode: Denoise,
    pad_positions: PadPositions = "aligned",
) -> Tensor:
    """(len(lengths), D): the bias for sentences of the given token counts, in that order.

    `none` gives zeros. Runs in the encoder's current mode (dropout, gradient).
    """
    if mode == "none":
        return torch.zeros(len(lengths), encoder.hidden_size, device=encoder.device)
    rows, which = bias_rows(encoder, template, lengths, mode, pad_positions)
    places = to_device(torch.from_numpy(which), encoder.device)
    return encode_rows(encoder, rows, "mask")[places]
