"""Template denoising: subtracting the vector of the empty template (docs/methods.md).

The bias only depends on the template and the sentence's token count n, so a short row is computed
per distinct n; the papers' code runs every length up to 80 tokens for every template and step.
Letters: K distinct lengths, L tokens, D hidden size.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from cotbert_core.encoder.backbone import Backbone
from cotbert_core.encoder.forward import encode_rows
from cotbert_core.errors import UserError, unknown
from cotbert_core.method_settings.bases import Denoise, PadPositions
from cotbert_core.templates.wrapping import BoundTemplate, Rows
from cotbert_core.training.devices import to_device
from cotbert_core.training.distributed import rank, union, world_size

BiasRows = Callable[[BoundTemplate, np.ndarray, PadPositions, int], Rows]


def _position_rows(
    template: BoundTemplate, lengths: np.ndarray, pad_positions: PadPositions, position_start: int
) -> Rows:
    """Return rows of the bare template, with positions after the slot shifted by n.

    PromptBERT section 4.3. pad_positions "released": position ids start at 0, although RoBERTa's
    filled rows start at `position_start`.
    """
    bare = template.wrap_pads(np.zeros_like(lengths))
    width = bare.ids.shape[1]
    columns = torch.arange(width, device="cpu")
    shifts = torch.from_numpy(lengths)[:, None] * (columns >= len(template.before))
    first = -position_start if pad_positions == "released" else 0
    return Rows(bare.ids, bare.lengths, bare.readout, first + columns + shifts)


def _pad_rows(
    template: BoundTemplate, lengths: np.ndarray, pad_positions: PadPositions, position_start: int
) -> Rows:
    """Return rows of the template with n attended [PAD] tokens in the slot (CoT-BERT section 3.3).

    pad_positions "aligned": every token has its position in the filled template. "released": its
    position if transformers gets no position ids: RoBERTa then skips pads, BERT does not.
    """
    rows = template.wrap_pads(lengths)
    if pad_positions == "aligned" or position_start == 0:
        return rows
    not_pad = rows.ids != template.pad_id
    counted = torch.cumsum(not_pad, dim=1) - 1
    return Rows(rows.ids, rows.lengths, rows.readout, torch.where(not_pad, counted, -1))


DENOISERS: dict[str, BiasRows] = {"position": _position_rows, "pad": _pad_rows}


def bias_rows(
    backbone: Backbone,
    template: BoundTemplate,
    lengths: np.ndarray,
    mode: Denoise,
    pad_positions: PadPositions = "aligned",
) -> tuple[Rows, np.ndarray]:
    """Return K rows of the empty template, one per distinct length, and (N,) indices into them.

    lengths: (N,) tokens of each sentence.
    """
    if mode not in DENOISERS:
        raise unknown("denoising mode", mode, DENOISERS)
    distinct, which = np.unique(np.asarray(lengths, np.int64), return_inverse=True)
    return DENOISERS[mode](template, distinct, pad_positions, backbone.position_start), which


def shared_bias_rows(
    backbone: Backbone,
    template: BoundTemplate,
    lengths: np.ndarray,
    mode: Denoise,
    pad_positions: PadPositions,
    limit: int,
) -> tuple[Rows, np.ndarray]:
    """Return this worker's share of the bias rows, and (N,) indices into the gathered biases.

    The rows are for the K distinct lengths of all workers. lengths: (N,) tokens of this worker's
    sentences. limit: upper bound of all lengths. All shares have equally many rows, so a share may
    repeat a row. Lengths are dealt to workers in alternating order (0, 1, 1, 0); otherwise the last
    worker would get the longest rows.
    """
    workers = world_size()
    distinct = union(lengths, limit)
    turn, owner = np.divmod(np.arange(len(distinct)), workers)
    owner = np.where(turn % 2, workers - 1 - owner, owner)
    each = -(-len(distinct) // workers)
    own = distinct[owner == rank()]
    repeated = np.resize(own if len(own) else distinct[:1], each)
    rows = DENOISERS[mode](template, repeated, pad_positions, backbone.position_start)
    index = np.searchsorted(distinct, lengths)
    return rows, owner[index] * each + turn[index]


def template_bias(
    encoder: Backbone,
    template: BoundTemplate,
    lengths: np.ndarray,
    mode: Denoise,
    pad_positions: PadPositions = "aligned",
    batches: tuple[int | None, int] = (None, 0),
) -> Tensor:
    """Return the template's bias for sentences of the given token counts, (len(lengths), D).

    mode `none` gives zeros. The encoder runs in its current mode (dropout, gradient). batches:
    batch_tokens and start_tokens of `encode_rows`. Raises UserError for a template without a mask.
    """
    if mode == "none" or not len(lengths):
        return torch.zeros(len(lengths), encoder.hidden_size, device=encoder.device)
    if not template.stages:
        raise UserError("the template has no mask, at which its bias is read: give one with [MASK]")
    rows, which = bias_rows(encoder, template, lengths, mode, pad_positions)
    index = to_device(torch.from_numpy(which), encoder.device)
    return encode_rows(encoder, rows, "mask", *batches)[index]
