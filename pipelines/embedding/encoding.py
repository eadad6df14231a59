"""Encode a block of texts to float32 vectors: equal texts once, long texts as `on_long` says.

Shapes: N rows of the block, U distinct texts, P token lists given to the encoder, D dimensions.

On a CPU reading, tokenizing and writing alternate with the model: on one core of an Intel Xeon with
AMX (2026-11-22, all-MiniLM-L6-v2, bf16, 1,024 Wikipedia sentences) the model takes 2.6 to 2.9 s,
tokenizing 0.04 s, reading and writing 0.01 s each, so overlapping could save at most 2 %. A worker
with a GPU does them for one block while the model has another (`turn`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from cotbert_core.evaluation.passages import Passages, cut_passages
from cotbert_core.sentence_encoder import SentenceEncoder
from cotbert_core.settings import Precision
from cotbert_core.templates.ragged_ids import Ragged, concatenate
from cotbert_core.templates.vocabulary_fit import vocabulary_counts


@dataclass(frozen=True)
class Encoded:
    """The vectors of a block.

    rows: (M,) indices of the texts that have a vector. vectors: (M, D) float32, before any
    normalization. long: (M,) whether a text has more tokens than the model reads. duplicates: texts
    that were there before. counts: those of vocabulary_counts. passages: of the M texts.
    """

    rows: np.ndarray
    vectors: np.ndarray
    long: np.ndarray
    duplicates: int
    counts: Counter[str]
    passages: Passages


def encode_block(
    encoder: SentenceEncoder,
    texts: Sequence[str],
    on_long: str = "truncate",
    precision: Precision = "auto",
    turn: AbstractContextManager[Any] | None = None,
    passage_words: int | None = None,
) -> Encoded:
    """Encode (N,) texts; with on_long "error", texts longer than the model reads get no vector.

    turn: held while the encoder runs, and not while texts are tokenized. passage_words: number of
    words of the passages to encode; None for no passages.
    """
    distinct, index = unique_texts(texts)
    ids = encoder.tokenize(distinct)
    long = ids.lengths > encoder.max_length
    used = ~long if on_long == "error" else np.ones(len(long), bool)
    rows = np.flatnonzero(used[index])
    counts = vocabulary_counts(distinct, ids, encoder.backbone.tokenizer.hf.unk_token_id)
    if not used.all():
        ids = ids.take(np.flatnonzero(used))
    number = None
    if on_long == "split-mean":
        ids, number = pieces(ids, encoder.max_length)
    encoded = [text for text, use in zip(distinct, used, strict=True) if use]
    cut, cuts = _passage_ids(encoder, encoded, passage_words)
    with turn or nullcontext():
        every = concatenate([ids, cut]) if len(cut) else ids
        vectors = encoder.encode_tokens(every, normalize=False, precision=precision)
    vectors, of_passages = vectors[: len(ids)], vectors[len(ids) :]
    if number is not None:
        vectors = weighted_means(vectors, ids.lengths, number)
    position = np.cumsum(used) - 1  # the index of a distinct text among the encoded ones
    places, duplicates = position[index[rows]], len(rows) - int(used.sum())
    passages = Passages(of_passages, cuts).take(places)
    return Encoded(rows, vectors[places], long[index[rows]], duplicates, counts, passages)


def _passage_ids(
    encoder: SentenceEncoder, texts: Sequence[str], words: int | None
) -> tuple[Ragged, np.ndarray]:
    """Return the token lists of the passages of (U,) texts, and how many each text has.

    A passage with more tokens than the model reads is several, so that none loses its end.
    """
    cut = [cut_passages(text, words) if words else [] for text in texts]
    counts = np.fromiter(map(len, cut), np.int64, len(cut))
    if not counts.any():
        return Ragged.from_lists([]), counts
    ids, number = pieces(encoder.tokenize(list(chain.from_iterable(cut))), encoder.max_length)
    of_text = np.repeat(np.arange(len(counts)), counts)
    return ids, np.bincount(of_text, number, len(counts)).astype(np.int64)


def unique_texts(texts: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """Return the U distinct texts in order, and (N,) the index of each text among them."""
    found: dict[str, int] = {}
    index = np.fromiter((found.setdefault(t, len(found)) for t in texts), np.int64, len(texts))
    return list(found), index


def pieces(ids: Ragged, size: int) -> tuple[Ragged, np.ndarray]:
    """Cut each list into pieces of `size` tokens; the last piece holds the rest.

    Returns the pieces and (N,) how many each list has. An empty list is one empty piece.
    """
    lengths = ids.lengths
    number = np.maximum(1, -(-lengths // size))
    cut = np.full(int(number.sum()), size, np.int64)
    cut[np.cumsum(number) - 1] = lengths - (number - 1) * size
    return Ragged.from_lengths(ids.flat, cut), number


def weighted_means(vectors: np.ndarray, lengths: np.ndarray, number: np.ndarray) -> np.ndarray:
    """Return (N, D) means of runs of (P, D) vectors. number: (N,) vectors of each run, at least 1.

    lengths: (P,) tokens, the weights.
    """
    first = np.cumsum(number) - number
    weights = np.maximum(lengths, 1).astype(np.float64)
    sums = np.add.reduceat(vectors * weights[:, None], first)
    means = sums / np.add.reduceat(weights, first)[:, None]
    # A text of one piece keeps its vector, to the last bit.
    alone = number == 1
    means[alone] = vectors[first[alone]]
    return means.astype(np.float32)
