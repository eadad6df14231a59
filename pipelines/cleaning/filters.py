"""The filters of cleaning: rules that return the reason to drop a text, or None.

The manifest counts dropped rows by reason. `filters_of` returns those that the options turn on.
Token bounds (`within_length`) are applied after tokenizing.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache, partial

import numpy as np

from pipelines.cleaning.languages import drop_language
from pipelines.cleaning.options import CleanOptions
from pipelines.cleaning.steps import UNK
from pipelines.reading.bad_rows import PREFIXES

Rule = Callable[[str], str | None]

# Texts with fewer words or characters are not tested for repetition: "no", "Bora Bora", "Aah".
REPEATED_WORDS = 4
REPEATED_CHARACTERS = 8


def drop_unk(text: str) -> str | None:
    """Return `unk` if the text has an <unk> in place of a word."""
    return "unk" if UNK in text else None


def drop_non_letters(text: str, limit: float) -> str | None:
    """Return `max_non_letters` if its share of characters other than letters and blanks is above
    `limit`."""
    return "max_non_letters" if non_letters(text) > limit * len(text) else None


_ASCII_LETTERS = bytes(c for c in range(128) if chr(c).isalpha() or chr(c).isspace())


def non_letters(text: str) -> int:
    """Return the number of characters that are neither blanks nor letters of any script."""
    ascii_part = text.encode("ascii", "ignore")
    count = len(ascii_part.translate(None, _ASCII_LETTERS))
    if len(ascii_part) < len(text):
        count += sum(not _is_letter(c) for c in text if c > "\x7f")
    return count


@lru_cache(maxsize=1 << 16)
def _is_letter(character: str) -> bool:
    """Return whether a character is a letter, a mark or a blank.

    Marks are half of a Hindi or Thai word, and str.isalpha is False for them.
    """
    return unicodedata.category(character)[0] in "LM" or character.isspace()


def drop_repeated(text: str, limit: float) -> str | None:
    """Return `repeated` if one word makes up more than the share `limit` of all words.

    In a text with few words, characters are counted instead. A text with few characters stays.
    """
    words = text.lower().split()
    if len(words) >= REPEATED_WORDS:
        parts, most = len(words), len(words) - len(set(words)) + 1
        if most > limit * parts:  # `most` is an upper bound: repeats may be of several words
            most = max(Counter(words).values())
    else:
        joined = "".join(words)
        parts, most = len(joined), max(map(joined.count, set(joined)), default=0)
        if parts < REPEATED_CHARACTERS:
            return None
    return "repeated" if most > limit * parts else None


def filters_of(options: CleanOptions) -> dict[str, Rule]:
    """Return the filters that the options turn on by name, in their order, the cheap ones first."""
    found: dict[str, Rule] = {}
    if "wikitext" in options.steps:
        found["unk"] = drop_unk
    if options.max_non_letters is not None:
        found["max_non_letters"] = partial(drop_non_letters, limit=options.max_non_letters)
    if options.repeated is not None:
        found["repeated"] = partial(drop_repeated, limit=options.repeated)
    if options.language:
        least = options.language_probability
        found["language"] = partial(drop_language, languages=options.language, least=least)
    return found


def within_length(
    columns: Sequence[np.ndarray], options: CleanOptions
) -> tuple[np.ndarray, Counter[str]]:
    """Return (N,) bool: whether each text of a row has min_tokens to max_tokens tokens.

    columns: (N,) token counts of each text of a row, exact up to max_tokens + 1. Also returns the
    number of rows dropped by `min_tokens` and `max_tokens`, with a prefix for paired texts.
    """
    keep = np.ones(len(columns[0]), bool)
    dropped: Counter[str] = Counter()
    for prefix, counts in zip(PREFIXES, columns, strict=False):
        for name, bound, outside in (
            ("min_tokens", options.min_tokens, np.less),
            ("max_tokens", options.max_tokens, np.greater),
        ):
            if bound is not None:
                bad = keep & outside(counts, bound)
                dropped[prefix + name] += int(bad.sum())
                keep &= ~bad
    return keep, +dropped
