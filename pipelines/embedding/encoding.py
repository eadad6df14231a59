"""A block of texts to float32 vectors: duplicates once, long texts by the rule, padding counted.

Letters: N rows of the block, U distinct texts, P pieces that go through the encoder, D dimensions.

Reading, tokenizing and writing are done in turn with the model, not beside it: of the time of one
core of an Intel Xeon with AMX (2026-11-22, all-MiniLM-L6-v2, bf16, 1,024 Wikipedia sentences) the
model takes 2.6 to 2.9 s, tokenizing 0.04 s, reading and writing 0.01 s each, so that stages beside
it could hide no more than 2 %.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cotbert_core.encoder.forward import padding
from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.settings import Precision
from cotbert_core.templates.ragged_ids import Ragged


@dataclass(frozen=True)
class Encoded:
    """rows: (M,) which of the N texts have a vector; vectors: (M, D) float32, as the encoder gives
    them before any normalisation. counts: duplicates, truncated, split, tokens, padding."""

    rows: np.ndarray
    vectors: np.ndarray
    counts: Counter[str]


def encode_block(
    encoder: SentenceEncoder,
    texts: Sequence[str],
    on_long: str = "truncate",
    precision: Precision = "auto",
) -> Encoded:
    """Vectors of (N,) texts; those without one are longer than the model reads."""
    distinct, which = first_places(texts)
    ids = encoder.tokenize(distinct)
    long = ids.lengths > encoder.max_length
    there = ~long if on_long == "error" else np.ones(len(long), bool)
    rows = np.flatnonzero(there[which])
    counts: Counter[str] = Counter()
    counts["duplicates"] = len(rows) - int(there.sum())
    # Rows, not distinct texts: what a user counts.
    affected = int(long[which].sum())
    counts["truncated"] = affected if on_long == "truncate" else 0
    counts["split"] = affected if on_long == "split-mean" else 0
    if not there.all():
        ids = ids.take(np.flatnonzero(there))
    if on_long == "split-mean":
        ids, first = pieces(ids, encoder.max_length)
        vectors = weighted_means(_vectors(encoder, ids, precision, counts), ids.lengths, first)
    else:
        vectors = _vectors(encoder, ids, precision, counts)
    place = np.cumsum(there) - 1  # of a distinct text among those that are encoded
    return Encoded(rows, vectors[place[which[rows]]], counts)


def _vectors(
    encoder: SentenceEncoder, ids: Ragged, precision: Precision, counts: Counter[str]
) -> np.ndarray:
    """(P, D) vectors of (P,) token lists, their padding counted."""
    lengths = np.minimum(ids.lengths, encoder.max_length) + encoder.bound.length
    backbone = encoder.backbone
    padded, total = padding(lengths, backbone.batch_tokens, packed=backbone.packs)
    counts["padding"] += padded
    counts["tokens"] += total
    return encoder.encode_tokens(ids, normalize=False, precision=precision)


def first_places(texts: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """The U distinct texts in their order, and for each of the N which of them it is."""
    place: dict[str, int] = {}
    which = np.fromiter((place.setdefault(t, len(place)) for t in texts), np.int64, len(texts))
    return list(place), which


def pieces(ids: Ragged, size: int) -> tuple[Ragged, np.ndarray]:
    """Each list cut into pieces of `size` tokens, the last as long as what is left; (N,) place of
    each list's first piece. An empty list is one empty piece."""
    lengths = ids.lengths
    number = np.maximum(1, -(-lengths // size))
    first = np.cumsum(number) - number
    cut = np.full(int(number.sum()), size, np.int64)
    cut[first + number - 1] = lengths - (number - 1) * size
    return Ragged.from_lengths(ids.flat, cut), first


def weighted_means(vectors: np.ndarray, lengths: np.ndarray, first: np.ndarray) -> np.ndarray:
    """(N, D) means of runs of (P, D) vectors that begin at `first`, weighted by (P,) tokens."""
    if not len(first):
        return vectors
    weights = np.maximum(lengths, 1).astype(np.float64)
    sums = np.add.reduceat(vectors * weights[:, None], first)
    means = sums / np.add.reduceat(weights, first)[:, None]
    # What is one piece stays as it is, to the last bit.
    alone = np.diff(first, append=len(vectors)) == 1
    means[alone] = vectors[first[alone]]
    return means.astype(np.float32)
