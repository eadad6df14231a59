"""Whether a tokenizer's vocabulary fits a text: an encoder of English reads little of Korean."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from cotbert_core.templates.ragged_ids import Ragged

# Keys of the counts: tokens, unknown tokens, characters and words.
TOKENS, UNKNOWN, CHARACTERS, WORDS = (
    f"vocabulary_{what}" for what in ("tokens", "unknown", "characters", "words")
)
# The share of unknown tokens from which a user is warned. all-MiniLM-L6-v2 has none in European
# languages, 8 % in Korean and Hindi, 19 % in Japanese and 71 % in Chinese sentences.
MOST_UNKNOWN = 0.05
# A text with fewer characters per token is spelled out: 1.2 in Arabic and 1.3 in Russian sentences
# read by all-MiniLM-L6-v2, but 5.3 in English, 2.9 in German, 2.4 in Turkish, 2.3 in Python code.
# A language without blanks has as few with a vocabulary of its own: its words are longer than this.
LEAST_CHARACTERS, LONGEST_WORD = 1.6, 15
# The number of tokens below which nothing is said: a few names or emoji would decide.
LEAST_TOKENS = 1000


def vocabulary_counts(texts: Sequence[str], ids: Ragged, unknown: int | None) -> Counter[str]:
    """Return the counts of texts and all their tokens.

    unknown: id of the unknown token, None for a vocabulary without one.
    """
    return Counter(
        {
            TOKENS: len(ids.flat),
            UNKNOWN: 0 if unknown is None else int((ids.flat == unknown).sum()),
            CHARACTERS: sum(map(len, texts)),
            WORDS: sum(text.count(" ") + 1 for text in texts),
        }
    )


def vocabulary_warnings(counts: Mapping[str, int], encoder: str) -> list[str]:
    """Return a warning if the encoder's vocabulary does not fit the texts that were counted."""
    tokens, unknown, characters, words = (
        counts.get(key, 0) for key in (TOKENS, UNKNOWN, CHARACTERS, WORDS)
    )
    advice = "choose an encoder of their language or field, or a multilingual one"
    if tokens < LEAST_TOKENS:
        return []
    if unknown >= MOST_UNKNOWN * tokens:
        return [
            f"{unknown / tokens:.1%} of the tokens are unknown to the vocabulary of {encoder}, so "
            f"texts that differ in them look alike to it: {advice}"
        ]
    if characters < LEAST_CHARACTERS * tokens and characters < LONGEST_WORD * words:
        return [
            f"the vocabulary of {encoder} spells the texts out, with {characters / tokens:.1f} "
            f"characters per token, so it knows few of their words: {advice}"
        ]
    return []
