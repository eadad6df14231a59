"""Random numbers of tokens and rows that only depend on the seed, the step and the row's tokens.

They do not depend on the other rows, the number of workers or a resume. Letters: N rows, T tokens
of all rows.
"""

from __future__ import annotations

import zlib

import numpy as np

from cotbert_core.templates.ragged_ids import Ragged


class TokenNumbers:
    """The random numbers of the tokens of some rows in one step."""

    def __init__(self, rows: Ragged, seed: int, step: int) -> None:
        keys = np.array(
            [zlib.crc32(row.tobytes()) for row in map(rows.__getitem__, range(len(rows)))]
        )
        keys = _mixed(keys.astype(np.uint64) + _mixed(np.array([seed], np.uint64)))
        self._rows = _mixed(keys + np.uint64(step))
        place = np.arange(len(rows.flat)) - np.repeat(rows.offsets[:-1], rows.lengths)
        self._tokens = np.repeat(self._rows, rows.lengths) + place.astype(np.uint64)

    def of_tokens(self, draw: int) -> np.ndarray:
        """Return (T,) numbers in [0, 1). draw: index of a token's random number."""
        return _uniform(self._tokens, draw)

    def of_rows(self, draw: int) -> np.ndarray:
        """Return (N,) numbers in [0, 1), shared with first tokens: use a different `draw`."""
        return _uniform(self._rows, draw)

    def of_columns(self, count: int, draw: int) -> np.ndarray:
        """Return (N, count) numbers in [0, 1): those of rows from this `draw` onwards."""
        return _uniform(self._rows[:, None], draw + np.arange(count))


def _uniform(keys: np.ndarray, draw: int | np.ndarray) -> np.ndarray:
    draws = np.asarray(draw, np.uint64)
    return np.asarray((_mixed(_mixed(keys) + draws) >> np.uint64(11)) * 2.0**-53)


def _mixed(values: np.ndarray) -> np.ndarray:
    """Return the next outputs of splitmix64 (Steele et al., 2014), whose states are `values`."""
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))
