"""Drop rows by the number of tokens in their texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.templates.tokenizing import PlainTokenizer
from pipelines.cleaning.filters import within_length
from pipelines.cleaning.options import CleanOptions
from pipelines.preparing.scratch_files import DROPPED
from pipelines.reading.bad_rows import PREFIXES


def filled_rows(tokens: Sequence[Ragged], bounds: CleanOptions, counts: Counter[str]) -> np.ndarray:
    """Return the rows whose texts all have a token and are within the bounds.

    tokens: token ids of each column of texts. The other rows are counted by their first bad text.
    """
    filled = np.ones(len(tokens[0]), bool)
    for prefix, lists in zip(PREFIXES, tokens, strict=False):
        empty = filled & (lists.lengths == 0)
        counts[f"{DROPPED}{prefix}no_tokens"] += int(empty.sum())
        filled &= ~empty
    rows: np.ndarray = np.flatnonzero(filled)
    inside, dropped = within_length([lists.lengths[rows] for lists in tokens], bounds)
    counts.update({f"{DROPPED}{reason}": n for reason, n in dropped.items()})
    rows = rows[inside]
    return rows


# Cached, since each of a shard's many pieces would parse the tokenizer's JSON again.
_tokenizer = lru_cache(maxsize=1)(PlainTokenizer)


@dataclass(frozen=True)
class EarlyBounds:
    """The token bounds applied in the first pass, before rows or documents are chosen."""

    tokenizer_json: str
    bounds: CleanOptions

    def rows(self, columns: Sequence[Sequence[str]], counts: Counter[str]) -> np.ndarray:
        """Return the rows that stay; count the others."""
        tokenizer = _tokenizer(self.tokenizer_json)
        longest = (self.bounds.max_tokens or self.bounds.min_tokens or 0) + 1
        return filled_rows([tokenizer(list(c), longest) for c in columns], self.bounds, counts)
