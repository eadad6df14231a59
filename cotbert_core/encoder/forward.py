"""Run rows through an encoder in batches of similar length, with or without gradient."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from cotbert_core.encoder.attention import FAMILIES, UNPADDED, without_cudnn
from cotbert_core.encoder.backbone import Backbone
from cotbert_core.encoder.length_batches import length_batches
from cotbert_core.encoder.pooling import READOUTS
from cotbert_core.encoder.threads import map_threads
from cotbert_core.templates.wrapping import Rows
from cotbert_core.training.devices import to_device
from cotbert_core.training.gradient_cache import recomputed


@dataclass(frozen=True)
class EncoderBatch:
    """A batch of n rows on the encoder's device.

    inputs: the encoder's arguments, padded to (n, width) or packed into (1, tokens) with offsets;
    with word vectors given, input_ids are row numbers of those. attended: (n, width) bool on the
    CPU, False at padding. readout: (n,) positions of the vectors to read. lengths: (n,) tokens of
    each row. unpacked: (tokens,) indices of packed tokens in the flattened padded rows, else None.
    features: (n, D) of `Rows`, or None.
    """

    inputs: dict[str, Any]
    attended: Tensor
    readout: Tensor
    lengths: Tensor
    unpacked: Tensor | None
    features: Tensor | None


def encode_rows(
    backbone: Backbone,
    rows: Rows,
    readout: str,
    batch_tokens: int | None = None,
    start_tokens: int = 0,
    mini_batch_size: int | None = None,
) -> Tensor:
    """Return the (N, D) sentence vectors of N rows in their order, with gradient if enabled.

    Rows are sorted by length and run in batches, each as wide as its longest row, so that little
    time is spent on padding. readout: a name in READOUTS. mini_batch_size: maximum number of rows
    in a batch, whose activations the backward pass then computes again. batch_tokens and
    start_tokens: see `length_batches`.
    """
    read = READOUTS[readout]
    # In training mode threads would take turns at dropout's random numbers in an arbitrary order.
    inference = not (torch.is_grad_enabled() or backbone.model.training)
    in_threads = inference and backbone.device.type == "cpu"
    budget = batch_tokens, start_tokens, mini_batch_size
    pieces = length_batches(rows.lengths.numpy(), *budget, packed=in_threads and backbone.packs)
    rows, words = _with_word_vectors(backbone, rows, len(pieces))

    def batch_of(piece: tuple[Tensor, int]) -> EncoderBatch:
        return _encoder_batch(backbone, rows, *piece)

    def vectors_of(batch: EncoderBatch) -> Tensor:
        hidden = _last_hidden(backbone.model, batch, words)
        return read(hidden, batch.readout, batch.lengths).float()

    if in_threads:
        vectors = map_threads(lambda piece: vectors_of(batch_of(piece)), pieces)
    elif mini_batch_size is None:
        vectors = [vectors_of(batch_of(piece)) for piece in pieces]
    else:
        # Both passes get the same tensors: jagged attention identifies a batch by its offsets.
        vectors = [recomputed(vectors_of, batch_of(p), device=backbone.device) for p in pieces]
    original_order = torch.cat([chosen for chosen, _ in pieces]).argsort()
    return torch.cat(vectors)[to_device(original_order, backbone.device)]


def hidden_at(
    backbone: Backbone,
    rows: Rows,
    wanted: Tensor,
    batch_tokens: int | None = None,
    start_tokens: int = 0,
) -> tuple[Tensor, Tensor]:
    """Return the last layer at the M wanted tokens of N rows, (M, D), and the order of those.

    wanted: (N, L) bool on the CPU. order: (M,) numbers of the wanted tokens, counted row by row;
    rows run in batches of similar length. batch_tokens and start_tokens: see `length_batches`.
    """
    pieces = length_batches(rows.lengths.numpy(), batch_tokens, start_tokens)
    rows, words = _with_word_vectors(backbone, rows, len(pieces))
    numbers = torch.zeros(wanted.shape, dtype=torch.long)
    numbers[wanted] = torch.arange(int(wanted.sum()))
    found = [torch.zeros(0, backbone.hidden_size, device=backbone.device)]
    places = [torch.zeros(0, dtype=torch.long)]
    for chosen, width in pieces:
        own = wanted[chosen, :width]
        hidden = _last_hidden(backbone.model, _encoder_batch(backbone, rows, chosen, width), words)
        # With a mask the host would wait until the GPU has counted its elements; indices avoid it.
        at = to_device(own.flatten().nonzero().squeeze(1), backbone.device)
        found.append(hidden.flatten(0, 1).index_select(0, at))
        places.append(numbers[chosen, :width][own])
    return torch.cat(found), torch.cat(places)


def _with_word_vectors(backbone: Backbone, rows: Rows, batches: int) -> tuple[Rows, Tensor | None]:
    """Return rows whose ids index their U distinct tokens, and the (U, E) word vectors of those.

    Rows of a single batch, and rows without gradient, stay as they are, without word vectors.
    The gradient of an embedding lookup is as large as its table. With lookups in the whole
    vocabulary, clearing and summing it took 7 % of a step of all-MiniLM-L6-v2.
    """
    if batches < 2 or not torch.is_grad_enabled():
        return rows, None
    distinct, indices = torch.unique(rows.ids, return_inverse=True)
    words = backbone.model.get_input_embeddings()(to_device(distinct, backbone.device))
    return replace(rows, ids=indices), words


def _encoder_batch(backbone: Backbone, rows: Rows, chosen: Tensor, width: int) -> EncoderBatch:
    """Return the chosen rows as a batch. width: number of tokens of the longest chosen row."""
    device = backbone.device
    lengths, ids = rows.lengths[chosen], rows.ids[chosen, :width]
    counted = torch.arange(width, device="cpu").expand(len(chosen), -1)
    positions = counted if rows.positions is None else rows.positions[chosen, :width]
    positions = positions + backbone.position_start
    attended = counted < lengths[:, None]
    inputs: dict[str, Any] = {"input_ids": ids, "position_ids": positions}
    unpacked = None
    if backbone.packs:
        inputs = {name: padded[attended][None] for name, padded in inputs.items()}
        inputs["offsets"] = F.pad(lengths.cumsum(0), (1, 0))
        # Computed on the CPU, since the host would wait until a GPU has counted the True elements.
        unpacked = to_device(attended.flatten().nonzero().squeeze(1), device)
    else:
        inputs["attention_mask"] = attention_mask(backbone, attended)
    return EncoderBatch(
        {name: None if part is None else to_device(part, device) for name, part in inputs.items()},
        attended,
        to_device(rows.readout[chosen], device),
        to_device(lengths, device),
        unpacked,
        None if rows.features is None else to_device(rows.features[chosen], device),
    )


def attention_mask(backbone: Backbone, attended: Tensor) -> Tensor | None:
    """Return the attention mask of padded rows, without synchronising host and device.

    None if there is no padding. attended: (n, width) bool on the CPU, like the result. For `sdpa`
    transformers checks a 2-D mask on the device in every forward pass, but not a 4-D mask. Families
    with other masks (sliding windows) keep the 2-D mask.
    """
    if bool(attended.all()):
        return None
    supported = (
        backbone.attention in ("sdpa", UNPADDED) and backbone.model.config.model_type in FAMILIES
    )
    if supported and backbone.device.type == "cuda":
        return attended[:, None, None]  # torch repeats it for each query, on the device
    return attended.long()


def _last_hidden(model: Any, batch: EncoderBatch, words: Tensor | None) -> Tensor:
    """Return the last layer of the rows, (n, width, D); values at padding are undefined."""
    inputs = dict(batch.inputs)
    if words is not None:
        inputs["inputs_embeds"] = F.embedding(inputs.pop("input_ids"), words)
    erased = _erased(model, batch, inputs["position_ids"].shape[1])
    with erased, without_cudnn(batch.lengths.device):
        if "offsets" not in inputs:
            return cast(Tensor, model(**inputs).last_hidden_state)
        rows, width = batch.attended.shape
        output: Tensor = model(**inputs, longest=width).last_hidden_state
    assert batch.unpacked is not None
    padded = output.new_zeros(rows * width, output.shape[-1])
    return padded.index_copy(0, batch.unpacked, output[0]).view(rows, width, -1)


@contextmanager
def _erased(model: Any, batch: EncoderBatch, width: int) -> Iterator[None]:
    """Erase the batch's features from the model's embeddings, (n, width, D) or (1, width, D)."""
    if batch.features is None:
        yield
        return
    if batch.unpacked is None:
        features = batch.features[:, None]
    else:
        features = batch.features.repeat_interleave(batch.lengths, 0, output_size=width)[None]
    embeddings = getattr(model, "embeddings", None) or model.embed_tokens  # EuroBERT's
    hook = embeddings.register_forward_hook(
        lambda _, __, embedded: embedded * features.to(embedded.dtype)
    )
    try:
        yield
    finally:
        hook.remove()
