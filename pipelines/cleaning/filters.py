"""The rules of cleaning that drop a text. The reason, which the manifest shows, is all they return.

An entry of FILTERS takes the options and returns its rule, or None where the options leave it off.
Bounds on the number of tokens come after tokenizing: `within_length`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import numpy as np

from pipelines.cleaning.languages import drop_language
from pipelines.cleaning.steps import UNK
from pipelines.reading.readers import PREFIXES

if TYPE_CHECKING:
    from pipelines.cleaning.options import CleanOptions

Rule = Callable[[str], str | None]

# Fewer words or characters than these say nothing about repetition: "no", "Bora Bora", "Aah".
REPEATED_WORDS = 4
REPEATED_CHARACTERS = 8


def _unk(options: CleanOptions) -> Rule | None:
    return drop_unk if "wikitext" in options.steps else None


def drop_unk(text: str) -> str | None:
    """`unk`: a word is missing."""
    return "unk" if UNK in text else None


def _max_non_letters(options: CleanOptions) -> Rule | None:
    limit = options.max_non_letters
    return None if limit is None else partial(drop_non_letters, limit=limit)


def drop_non_letters(text: str, limit: float) -> str | None:
    """`max_non_letters`: more than this share of the characters is neither letter nor blank."""
    return "max_non_letters" if non_letters(text) > limit * len(text) else None


_ASCII_LETTERS = bytes(c for c in range(128) if chr(c).isalpha() or chr(c).isspace())


def non_letters(text: str) -> int:
    """How many characters are neither blanks nor letters of any script."""
    ascii_part = text.encode("ascii", "ignore")
    count = len(ascii_part.translate(None, _ASCII_LETTERS))
    if len(ascii_part) < len(text):
        count += sum(not _is_letter(c) for c in text if c > "\x7f")
    return count


@lru_cache(maxsize=1 << 16)
def _is_letter(character: str) -> bool:
    """Marks count, which are half of a Hindi or Thai word: str.isalpha alone says no to them."""
    import unicodedata

    return unicodedata.category(character)[0] in "LM" or character.isspace()


def _repeated(options: CleanOptions) -> Rule | None:
    limit = options.repeated
    return None if limit is None else partial(drop_repeated, limit=limit)


def drop_repeated(text: str, limit: float) -> str | None:
    """`repeated`: one word is more than this share of all words; in a text of few words, one
    character of all characters. A text too short to tell stays."""
    words = text.lower().split()
    if len(words) >= REPEATED_WORDS:
        parts, most = len(words), len(words) - len(set(words)) + 1
        if most > limit * parts:  # it may be one word or several
            most = max(Counter(words).values())
    else:
        joined = "".join(words)
        parts, most = len(joined), max(map(joined.count, set(joined)), default=0)
        if parts < REPEATED_CHARACTERS:
            return None
    return "repeated" if most > limit * parts else None


def _language(options: CleanOptions) -> Rule | None:
    if not options.language:
        return None
    return partial(drop_language, languages=options.language, least=options.language_probability)


# In the order in which they are asked: the cheap ones first.
FILTERS: dict[str, Callable[[CleanOptions], Rule | None]] = {
    "unk": _unk,
    "max_non_letters": _max_non_letters,
    "repeated": _repeated,
    "language": _language,
}


def within_length(
    columns: Sequence[np.ndarray], options: CleanOptions
) -> tuple[np.ndarray, Counter[str]]:
    """Which rows have between min_tokens and max_tokens tokens in each of their texts.

    columns: of each text of a row its (N,) token counts, uncut or cut to no less than
    max_tokens + 1. Returns (N,) bool and how many rows fall to `min_tokens` and to `max_tokens`,
    with a prefix where it is a companion that does.
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
