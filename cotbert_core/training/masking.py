"""Choose and corrupt the tokens that a masked language model has to predict.

The choice depends neither on the number of workers nor on a resume (`TokenNumbers`). Letters: T
tokens of all rows, V vocabulary size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.templates.tokenizing import is_byte_level
from cotbert_core.training.token_numbers import TokenNumbers

# BERT's corruption of the chosen tokens: 80 % become the mask, 10 % any token, 10 % stay.
MASKED, REPLACED = 0.8, 0.1


@dataclass(frozen=True)
class Masked:
    """Rows for a masked language model.

    ids: the rows as the encoder reads them. chosen: (T,) bool, True at a token to be predicted.
    """

    ids: Ragged
    chosen: np.ndarray


@dataclass(frozen=True)
class Masking:
    """The masking of tokens.

    share: share of a row's tokens to choose. mask_id: id of the mask. tokens: V. continues: (V,)
    bool, True for a token that continues a word, for whole-word masking.
    """

    share: float
    mask_id: int
    tokens: int
    continues: np.ndarray | None = None

    def __call__(self, rows: Ragged, seed: int, step: int) -> Masked:
        """Return the rows with chosen tokens corrupted as in BERT."""
        numbers = TokenNumbers(rows, seed, step)
        chosen = self._choose(rows, numbers.of_tokens(0))
        how, token = numbers.of_tokens(1), numbers.of_tokens(2)
        ids = np.where(chosen & (how < MASKED), self.mask_id, rows.flat)
        replaced = chosen & (how >= MASKED) & (how < MASKED + REPLACED)
        ids[replaced] = (token[replaced] * self.tokens).astype(ids.dtype)
        return Masked(Ragged(ids.astype(rows.flat.dtype), rows.offsets), chosen)

    def only_masks(self, rows: Ragged, seed: int, step: int = 0) -> Masked:
        """Return the rows with all chosen tokens masked."""
        chosen = self._choose(rows, TokenNumbers(rows, seed, step).of_tokens(0))
        ids = np.where(chosen, self.mask_id, rows.flat).astype(rows.flat.dtype)
        return Masked(Ragged(ids, rows.offsets), chosen)

    def _choose(self, rows: Ragged, numbers: np.ndarray) -> np.ndarray:
        """Return the chosen tokens (T,) bool: words in the order of their first token's number,
        until a row has its share of tokens, at least one."""
        row = np.repeat(np.arange(len(rows)), rows.lengths)
        word = np.arange(len(rows.flat))
        if self.continues is not None:
            word = word_numbers(rows, self.continues)
        first = np.unique(word, return_index=True)[1]
        order = np.lexsort((numbers[first], row[first]))
        sizes = np.bincount(word)[order]
        before = np.cumsum(sizes) - sizes - rows.offsets[row[first][order]]
        wanted = np.maximum(1, np.rint(self.share * rows.lengths))[row[first][order]]
        taken = np.zeros(len(first), bool)
        taken[order] = before < wanted
        return taken[word]


def word_numbers(rows: Ragged, continues: np.ndarray) -> np.ndarray:
    """Return the word index (T,) of each token, counted over all rows.

    continues: (V,) bool, True for a token that continues a word. A row begins with a word.
    """
    begins = ~continues[rows.flat]
    begins[rows.offsets[:-1][rows.lengths > 0]] = True
    return np.asarray(np.cumsum(begins) - 1)


def word_continuations(tokenizer: Any, tokens: int) -> np.ndarray:
    """Return (tokens,) bool, True for the ids of a Hugging Face tokenizer that continue a word.

    WordPiece marks them by ##. Byte-level and SentencePiece tokenizers (U+2581) instead mark the
    first token of a word.
    """
    byte_level = is_byte_level(tokenizer.backend_tokenizer)
    marks = ("\u0120", "\u010a") if byte_level else ("\u2581",)
    starts = byte_level or any(token.startswith("\u2581") for token in tokenizer.get_vocab())
    special = set(tokenizer.all_special_ids)
    continues = np.zeros(tokens, bool)
    for token, number in tokenizer.get_vocab().items():
        if number < tokens and number not in special:
            continues[number] = not token.startswith(marks) if starts else token.startswith("##")
    return continues
