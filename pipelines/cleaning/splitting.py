"""Split running text into sentences with sentencex, the splitter of Wikimedia's translation tool.

On the 1,841 paragraphs of WikiText-2's validation text it finds 270,000 sentences per second on a
core, pysbd 1,400; where they differ, sentencex more often keeps a bracket or a quotation whole. In
doubtful cases it does not split. It also ends a sentence at a full stop without a blank, which is
right in film reviews ("too long.The end") and wrong in a name ("torch.nn.Module"), so pieces of a
name are joined again: 2,352 of 3,231 such ends in 17,594 docstrings, 51 of 14,080 in 8,000 reviews.
The number of a list item or section ("2.", "6.9.1.") is joined to what follows, in 8,000 reviews 69
times.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from cotbert_core.errors import UserError

# The languages with rules, and Chinese, which needs none. sentencex would silently split any other
# language by the rules of English.
_EUROPEAN = "bg ca da de el en es fi fr hy it nl pl pt ru sk uk"
_OTHER = "am ar bn gu hi ja kk kn ml mr my pa ta te zh"
LANGUAGES = frozenset(f"{_EUROPEAN} {_OTHER}".split())

# What tells a name: a full stop inside the word before the cut; in the word after it an inner
# capital or full stop, or a beginning like that of a private name.
_NAME_BEFORE = re.compile(r"\w\.\w\S*\.$")
_NAME_AFTER = re.compile(r"[_{]|\S*?([a-z][A-Z]|\w\.\w)")
# The number of a list item or of a section ("2.", "B.", "IV.", "§ 6.9.1."), which does not end a
# sentence.
_NUMBER = re.compile(r"\s*(?:§+\s*)?(?:\d{1,3}(?:\.\d{1,3})*|[A-Za-z]|[IVXLC]+)\.\s*")

# sentencex panics at a letter, such a blank and a full stop ("J\xa0."). Readers have already folded
# these blanks to plain ones.
_BLANKS_BEYOND_ASCII = re.compile(r"[^\S\x00-\x7f]")

# How much of the text before a cut is looked at. With all of it, 320,000 characters of code without
# a blank took 12 s.
MOST_CHARACTERS = 200
# The time of sentencex is quadratic in the number of quotations in a line, such as names in
# backticks: 53 s for a line of 880,000 characters, 4 s if it sees as many at a time as this.
MOST_AT_ONCE = 50_000


def check_splitter(language: str) -> None:
    """Raise UserError unless sentencex has rules for this language."""
    if language not in LANGUAGES:
        raise UserError(
            f"split is {language!r}, a language without sentence rules: choose one of "
            f"{', '.join(sorted(LANGUAGES))}, or the most similar one if yours is missing"
        )


def split(text: str, language: str) -> list[str]:
    """Return the non-empty, stripped sentences of a text in order. A line end ends a sentence."""
    text = _BLANKS_BEYOND_ASCII.sub(" ", text)
    parts = (part for line in text.split("\n") for part in _joined(_segments(line, language)))
    return [sentence for part in parts if (sentence := part.strip())]


def _segments(line: str, language: str) -> Iterator[str]:
    """Yield the pieces into which sentencex cuts a line.

    It sees at most MOST_AT_ONCE characters at a time. The last piece of these may be incomplete, so
    it is cut again together with what follows.
    """
    from sentencex import segment

    start, begun = 0, ""
    while len(line) - start > MOST_AT_ONCE:
        *whole, last = segment(language, line[start : start + MOST_AT_ONCE])
        start += MOST_AT_ONCE - (len(last) if whole else 0)
        begun += "" if whole else last
        for piece in whole:
            yield begun + piece
            begun = ""
    for piece in segment(language, line[start:]):
        yield begun + piece
        begun = ""


def _joined(parts: Iterable[str]) -> list[str]:
    """Join pieces that were cut within a name, or after the number of a list item."""
    joined: list[list[str]] = []
    before = ""
    for part in parts:
        if joined and (_NUMBER.fullmatch(before) or _is_within_name(before, part)):
            joined[-1].append(part)
            before = (before + part)[-MOST_CHARACTERS:]
        else:
            joined.append([part])
            before = part[-MOST_CHARACTERS:]
    return ["".join(pieces) for pieces in joined]


def _is_within_name(before: str, after: str) -> bool:
    if not before.endswith(".") or before.endswith("..") or after[:1].isspace():
        return False
    word = before.rsplit(None, 1)[-1]
    is_quoted = word.count("`") % 2 == 1
    return is_quoted or bool(_NAME_BEFORE.search(word) or _NAME_AFTER.match(after))
