"""Negate English sentences in token ids, by rules and without a parser (for SNCSE).

The first "not" is removed (or the "not" of "cannot", the "n't" of "isn't"). In a sentence without
one, "not" is inserted after the first auxiliary or modal verb, and a sentence without such a verb
gets the prefix "It is not true that". The rules ignore grammar: in "the can is empty" they negate
the noun. The words are tokenized once, with the encoder's tokenizer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from cotbert_core.templates.ragged_ids import Ragged
from cotbert_core.templates.tokenizing import SentenceTokenizer
from cotbert_core.training.masking import word_continuations

VERBS = (
    *("am", "is", "are", "was", "were", "can", "could", "will", "would", "shall", "should"),
    *("may", "might", "must", "has", "have", "had", "do", "does", "did"),
)
# Contractions other than a verb followed by "n't".
IRREGULAR = {"can't": "can", "won't": "will", "shan't": "shall", "cannot": "can", "n't": ""}
BEFORE = "It is not true that"


@dataclass(frozen=True)
class Change:
    """Words in token ids, and their replacement.

    initial: whether they only match at the start of a sentence, as capitalized words do.
    """

    words: tuple[int, ...]
    instead: tuple[int, ...]
    initial: bool


class Negation:
    """Negate sentences in the token ids of a tokenizer."""

    def __init__(self, tokenizer: SentenceTokenizer) -> None:
        self._tokenizer = tokenizer
        contractions = {f"{verb}n't": verb for verb in VERBS} | IRREGULAR
        removals = {"not": "", **contractions}
        removals |= {words.replace("'", "\u2019"): verb for words, verb in contractions.items()}
        # For each of the two rules, the changes by their first token.
        self._rules = [self._rule(removals), self._rule({v: f"{v} not" for v in VERBS})]
        self._before = self._ids(BEFORE)
        vocabulary = tokenizer.hf.get_vocab()
        continues = word_continuations(tokenizer.hf, max(vocabulary.values()) + 1)
        # The tokens that continue a word; punctuation does not.
        self._continuing = {
            number
            for token, number in vocabulary.items()
            if continues[number] and (token.startswith("##") or re.match("[A-Za-z0-9]", token))
        }

    def __call__(self, sentences: Ragged) -> Ragged:
        """Return the negations of N sentences, which are a few tokens longer or shorter."""
        rows = (sentences[number].tolist() for number in range(len(sentences)))
        return Ragged.from_lists([self._negated(row) for row in rows])

    def _negated(self, row: list[int]) -> list[int]:
        for rule in self._rules:
            for start, token in enumerate(row):
                for change in rule.get(token, ()):
                    stop = start + len(change.words)
                    if self._stands_at(row, start, stop, change):
                        return [*row[:start], *change.instead, *row[stop:]]
        return [*self._before, *row]

    def _stands_at(self, row: list[int], start: int, stop: int, change: Change) -> bool:
        """Return whether row[start:stop] equals the change's words, as whole words."""
        if tuple(row[start:stop]) != change.words or (change.initial and start > 0):
            return False
        return stop == len(row) or row[stop] not in self._continuing

    def _rule(self, texts: Mapping[str, str]) -> dict[int, list[Change]]:
        """Return the changes of texts by their first token."""
        changes: dict[tuple[int, ...], Change] = {}
        for initial in (True, False):  # equal for an uncased tokenizer: anywhere
            for text, instead in texts.items():
                both = (text.capitalize(), instead.capitalize()) if initial else (text, instead)
                words, others = map(self._ids, both)
                changes[words] = Change(words, others, initial)
        by_first: dict[int, list[Change]] = {}
        for change in changes.values():
            by_first.setdefault(change.words[0], []).append(change)
        return by_first

    def _ids(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer([text], None)[0].tolist())
