"""The mean of static token embeddings, with or without its biases (PromptBERT section 3, Table 3).

Only the word embedding table is used: no positions, no token types, no layer norm. Letters: N
sentences, T tokens of all of them, V vocabulary size, D hidden size.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from tokenizers import decoders

from cotbert_core.encoder.backbone import Backbone
from cotbert_core.errors import UserError, unknown
from cotbert_core.readouts.options import FeatureOptions
from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.templates.tokenizing import SentenceTokenizer, is_byte_level
from cotbert_core.templates.wrapping import BoundTemplate

# The marks of a token that begins a word in byte-level BPE and SentencePiece.
WORD_STARTS = ("Ġ", "▁")


def begin_words(tokens: Sequence[str], rules: Mapping[str, Any]) -> list[bool]:
    """Return for each token whether it begins a word. rules: the content of a tokenizer.json.

    In a vocabulary of whole words, or of BPE that marks the ends of words, all tokens do. So do the
    words that a user added, which have no mark.
    """
    if prefix := rules["model"].get("continuing_subword_prefix"):  # of WordPiece and, seldom, BPE
        return [not token.startswith(prefix) for token in tokens]
    begin = [token.startswith(WORD_STARTS) for token in tokens]
    if not any(begin):
        return [True] * len(tokens)
    words = {added["content"] for added in rules["added_tokens"] if not added["special"]}
    words = set(filter(str.strip, words))  # without ModernBERT's runs of blanks
    return [begins or token in words for begins, token in zip(begin, tokens, strict=True)]


@dataclass(frozen=True)
class Vocabulary:
    """Properties of a vocabulary's V tokens, each (V,) bool."""

    begins_word: np.ndarray
    has_letter_or_digit: np.ndarray

    @classmethod
    def of(cls, tokenizer: SentenceTokenizer, size: int) -> Vocabulary:
        """Return the properties of the first `size` tokens, the rows of an embedding table."""
        tokens = [str(t) for t in tokenizer.hf.convert_ids_to_tokens(range(size))]
        begins = begin_words(tokens, json.loads(tokenizer.json))
        texts = tokens
        if is_byte_level(tokenizer.hf.backend_tokenizer):
            decode = decoders.ByteLevel().decode
            texts = [decode([token]) for token in tokens]
        # Part of a letter is indistinguishable from part of a quotation mark, and is kept.
        wordlike = [any(map(str.isalnum, t)) or "\ufffd" in t for t in texts]
        return cls(np.array(begins), np.array(wordlike))


def most_frequent(tokens: Ragged, size: int, count: int) -> np.ndarray:
    """Return (V,) bool, True for the `count` most frequent tokens; lower ids win ties. size: V."""
    counts = np.bincount(tokens.flat, minlength=size)
    chosen = np.argsort(-counts, kind="stable")[:count]
    frequent = np.zeros(size, bool)
    frequent[chosen[counts[chosen] > 0]] = True
    return frequent


# For each bias of Table 3 a function of the vocabulary and the frequent tokens (V,) that returns
# the tokens (V,) to remove. `case` removes no tokens: the text is lower-cased before it is
# tokenized.
REMOVALS: dict[str, Callable[[Vocabulary, np.ndarray], np.ndarray]] = {
    "frequent": lambda vocabulary, frequent: frequent,
    "subwords": lambda vocabulary, frequent: ~vocabulary.begins_word,
    "case": lambda vocabulary, frequent: np.zeros_like(frequent),
    "punctuation": lambda vocabulary, frequent: ~vocabulary.has_letter_or_digit,
}


class StaticFeatures:
    """A function from N sentences to the (N, D) means of their tokens' static embeddings.

    [CLS] and [SEP] count as tokens, as in the paper's code, unless biases are removed: then these
    tokens are removed too. A sentence that would lose all its tokens keeps them; `kept_whole`
    counts such sentences. counted: the distinct sentences in which the most frequent tokens are
    counted; None: the sentences of each call.
    """

    def __init__(
        self, backbone: Backbone, options: FeatureOptions, counted: Sequence[str] | None = None
    ) -> None:
        _check(options)
        self._tokenizer = backbone.tokenizer
        self._table = backbone.model.get_input_embeddings().weight.detach()
        self._vocabulary = Vocabulary.of(backbone.tokenizer, len(self._table))
        self._ends = BoundTemplate.bind(None, backbone.tokenizer.hf)
        self._room = backbone.max_tokens - self._ends.length
        self._options = options
        self._frequent = None if counted is None else self._find_frequent(counted)
        self.kept_whole = 0

    def __call__(self, sentences: Sequence[str]) -> np.ndarray:
        rows = between(self._ends.before, self._tokens(sentences), self._ends.after)
        if self._options.remove:
            rows, kept_whole = remove_tokens(rows, self._removed(sentences))
            self.kept_whole += kept_whole
        device = self._table.device
        means = torch.nn.functional.embedding_bag(
            torch.from_numpy(rows.flat).long().to(device),
            self._table,
            torch.from_numpy(rows.offsets[:-1]).to(device),
            mode="mean",
        )
        return np.asarray(means.cpu().numpy())

    def _removed(self, sentences: Sequence[str]) -> np.ndarray:
        """Return (V,) bool, True for the tokens to remove."""
        names = self._options.remove
        frequent = np.zeros(len(self._table), bool)
        if "frequent" in names:
            known = self._frequent
            frequent = self._find_frequent(sentences) if known is None else known
        removed = np.any([REMOVALS[name](self._vocabulary, frequent) for name in names], axis=0)
        removed[[*self._ends.before, *self._ends.after]] = True
        return np.asarray(removed)

    def _find_frequent(self, sentences: Sequence[str]) -> np.ndarray:
        distinct = list(dict.fromkeys(sentences))
        return most_frequent(self._tokens(distinct), len(self._table), self._options.frequent_count)

    def _tokens(self, sentences: Sequence[str]) -> Ragged:
        texts = [" ".join(s.split()) for s in sentences]
        if "case" in self._options.remove:
            texts = [t.lower() for t in texts]
        # As in the paper's code, so that a byte-level tokenizer knows the first word for a word.
        blank = "subwords" in self._options.remove
        return self._tokenizer(texts, self._room, in_template=blank)


def between(before: tuple[int, ...], tokens: Ragged, after: tuple[int, ...]) -> Ragged:
    """Return the lists of ids with `before` prepended and `after` appended to each."""
    around = len(before) + len(after)
    rows = Ragged.from_lengths(
        np.empty(len(tokens.flat) + len(tokens) * around, np.int32), tokens.lengths + around
    )
    moved = len(before) + around * np.repeat(np.arange(len(tokens)), tokens.lengths)
    rows.flat[np.arange(len(tokens.flat)) + moved] = tokens.flat
    rows.flat[rows.offsets[:-1, None] + np.arange(len(before))] = before
    rows.flat[rows.offsets[1:, None] - len(after) + np.arange(len(after))] = after
    return rows


def remove_tokens(tokens: Ragged, removed: np.ndarray) -> tuple[Ragged, int]:
    """Return the lists without the tokens that `removed` (V,) marks, and the number kept whole.

    A list that would lose all its tokens is kept whole.
    """
    kept = ~removed[tokens.flat]
    counts = np.diff(np.concatenate([[0], np.cumsum(kept)])[tokens.offsets])
    whole = counts == 0
    kept |= np.repeat(whole, tokens.lengths)
    lengths = np.where(whole, tokens.lengths, counts)
    return Ragged.from_lengths(tokens.flat[kept], lengths), int(whole.sum())


def _check(options: FeatureOptions) -> None:
    for name in options.remove:
        if name not in REMOVALS:
            raise unknown("bias to remove", name, REMOVALS)
    if options.frequent_count < 1:
        raise UserError(f"frequent_count is {options.frequent_count}: give at least 1 token")
    if "frequent" not in options.remove and options.frequent_count != FeatureOptions.frequent_count:
        raise UserError(
            f"frequent_count is {options.frequent_count} and no frequent tokens are removed: add "
            "'frequent' to remove"
        )
