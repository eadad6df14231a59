"""Filter unusable rewrites, with the reason for each."""

from __future__ import annotations

import re
import unicodedata
from functools import cache

import regex

from cotbert_core.evaluation.keyword_search import NO_BLANKS
from pipelines.augmenting.options import Limits

# In scripts without blanks each letter counts as a word. Unlike re, regex takes the marks of Hindi
# or Tamil as parts of a word.
_WORD = regex.compile(rf"[{NO_BLANKS}]|[^\W{NO_BLANKS}]+(?:['\u2019][^\W{NO_BLANKS}]+)*")
# Refusals and phrases by which models identify themselves; in lower case with straight quotes.
_CANNOT = r"(?:can't|cannot|can not|unable|not able|won't|will not)"
_REFUSAL = re.compile(
    r"\bas an ai\b|\bas a (?:large )?language model\b"
    rf"|^(?:i'm |i am )?sorry\b.{{0,40}}\b{_CANNOT}\b"
    rf"|\b(?:i|we)\b.{{0,10}}\b{_CANNOT} (?:to )?"
    r"(?:assist|help|comply|rewrite|rephrase|paraphrase|fulfil|provide)"
)


def fault(source: str, rewrite: str, limits: Limits, *, by_model: bool = False) -> str | None:
    """Return why `rewrite` cannot be used for `source`; None if it can.

    Reasons are empty, equal (ignoring case, punctuation and blanks), too_short and too_long (in
    words), and for the answer of a language model (by_model) several_lines and refusal.
    """
    if not rewrite.strip():
        return "empty"
    if by_model and len(rewrite.strip().splitlines()) > 1:
        return "several_lines"
    if by_model and _refuses(source, rewrite):
        return "refusal"
    if _bare(source) == _bare(rewrite):
        return "equal"
    before, after = words(source), words(rewrite)
    if after < limits.min_ratio * before:
        return "too_short"
    return "too_long" if after > limits.max_ratio * before else None


def _refuses(source: str, rewrite: str) -> bool:
    """Return whether a rewrite contains a refusal that its source does not contain."""
    before, after = (_REFUSAL.search(_plain(text)) for text in (source, rewrite))
    return after is not None and before is None


def _plain(text: str) -> str:
    return " ".join(text.replace("\u2019", "'").lower().split())


def words(text: str) -> int:
    """Return the number of words of a text, at least 1, since ratios divide by it."""
    return max(1, len(_WORD.findall(text)))


def _bare(text: str) -> str:
    return "".join(filter(_counts, unicodedata.normalize("NFKC", text).casefold()))


@cache
def _counts(character: str) -> bool:
    """Return whether a character is a letter, mark (a vowel in many scripts), digit or symbol."""
    return unicodedata.category(character)[0] not in "PZC"
