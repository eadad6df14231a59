"""Repeat, delete or reorder the tokens of sentences.

Letters: N sentences, T tokens of all sentences. The random numbers come from `TokenNumbers`, so
they depend neither on the other sentences nor on the number of workers.
"""

from __future__ import annotations

import numpy as np

from cotbert_core.templates.ragged_ids import Ragged


def repeat_sampled(sentences: Ragged, counts: np.ndarray, numbers: np.ndarray) -> Ragged:
    """Return the sentences with some tokens repeated.

    counts: (N,) number of tokens to choose in each sentence. numbers: (T,) random numbers; the
    tokens with the smallest are chosen.
    """
    return _multiply(sentences, 1 + _smallest(sentences, counts, numbers))


def delete_sampled(sentences: Ragged, counts: np.ndarray, numbers: np.ndarray) -> Ragged:
    """Return the sentences without some of their tokens; arguments as in `repeat_sampled`."""
    return _multiply(sentences, 1 - _smallest(sentences, counts, numbers))


def shuffle(sentences: Ragged, numbers: np.ndarray) -> Ragged:
    """Return the sentences with their tokens sorted by random numbers (T,)."""
    return Ragged(sentences.flat[_order(sentences, numbers)], sentences.offsets)


def invert(sentences: Ragged) -> Ragged:
    """Return the sentences with their tokens reversed."""
    ends = sentences.offsets[:-1] + sentences.offsets[1:] - 1
    mirrored = np.repeat(ends, sentences.lengths) - np.arange(len(sentences.flat))
    return Ragged(sentences.flat[mirrored], sentences.offsets)


def _smallest(sentences: Ragged, counts: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Return (T,) int64, 1 for the `counts` tokens of each sentence with the smallest numbers."""
    chosen = np.zeros(len(sentences.flat), np.int64)
    place = np.arange(len(chosen)) - np.repeat(sentences.offsets[:-1], sentences.lengths)
    chosen[_order(sentences, numbers)] = place < np.repeat(counts, sentences.lengths)
    return chosen


def _order(sentences: Ragged, numbers: np.ndarray) -> np.ndarray:
    """Return the (T,) indices that sort each sentence's tokens by their numbers."""
    return np.lexsort((numbers, np.repeat(np.arange(len(sentences)), sentences.lengths)))


def _multiply(sentences: Ragged, times: np.ndarray) -> Ragged:
    """Return the sentences with each token repeated. times: (T,)."""
    before = np.concatenate([[0], np.cumsum(times)])
    return Ragged(np.repeat(sentences.flat, times), before[sentences.offsets])
