"""Texts whose lines are wrapped, each up to a blank line, a rule, a heading, a list item, a table
row or the beginning or end of a quotation.

`unwrapped` makes a row of each such text of a file; `paragraphs_of` a line of each in a row's text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import regex

from pipelines.reading.line_reader import MOST_LINE_BYTES

# A line that begins a text: a Markdown heading, an item of a list or a row of a table.
_BEGINS = re.compile(r"\s*(?:(?:#{1,6}|[-*+]|•|\d{1,3}[.)])\s|\|)")
_HEADING = re.compile(r"\s*#{1,6}\s")
# A blank line, or one that underlines a heading, fences code (```python), separates the rows of a
# table or is a horizontal rule.
_RULE = re.compile(
    r"\s*+(?:([-=~^_*+#.:\"'`])\1\1(?:\1|\s)*"
    r"|(?:`{3,}|~{3,})\s*[^\s`~]+\s*"
    r"|(?=[^|+]*[|+])(?=.*(?:--|==))[-=:|+\s]+)?$"
)
# The marks of a quoted line in mail and Markdown, and whether a number follows them. ">>>" is the
# prompt of Python.
_QUOTE = re.compile(r"\s*+(>>?(?:\s+>>?)*)(?:\s+|$)(?=(\d?))")
# Line breaks that no blank replaces: those between Chinese or Japanese characters, also beside
# dashes, dots and quotes that other scripts have too, and those in divided words, with the hyphen.
# "-" stays, because some words are always written with it.
_WIDE = "\u3000-\u30ff\u3400-\u9fff\uff00-\uffef"
_MARKS = "[\u00b7\u2014\u2018\u2019\u201c\u201d\u2026]*"
_NO_BLANK = regex.compile(
    rf"(?<=[{_WIDE}]{_MARKS})\n(?={_MARKS}[{_WIDE}])|[\u00ad\u2010]\n(?=\p{{Ll}})"
)
# A line that ends a sentence, perhaps in quotes or brackets.
_ENDS = regex.compile(r"[\p{SB=ATerm}\p{SB=STerm}:;\u2026\u061b\uff1a\uff1b][\p{SB=Close}*_`]*\s*$")
# The first word of a line that continues a sentence; in Chinese and Japanese a character.
_LOWER = regex.compile(rf"\s*([{_WIDE}]|[\p{{Ll}}\p{{Lo}}]\S*)")
_BLANK = re.compile(r"\n\s*\n")
_SENTENCE_END = regex.compile(
    r"[\u3002\uff01\uff1f]|[\p{SB=ATerm}\p{SB=STerm}]\p{SB=Close}*(?:\s|$)"
)
# Lines look wrapped if at least this share of them, and this many, continue the sentence of the
# line before.
LEAST_SHARE, LEAST_LINES = 0.3, 3
# They are no sentences if fewer than this share have a place where one ends.
LEAST_ENDS = 0.2


def unwrapped(rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Yield the texts that the lines of a file form, as UTF-8, each with what follows its first
    line. The marks of quoted lines are left out.

    rows: (line, ...), a line None if it is too long, which makes its text None. So does a text that
    is too long in all.
    """
    decoded = (
        (None if line is None else line.decode("utf-8", "surrogateescape"), *rest)
        for line, *rest in rows
    )
    for text, *rest in _texts(decoded):
        yield None if text is None else text.encode("utf-8", "surrogateescape"), *rest


def paragraphs_of(text: str) -> str:
    """Return a text with a line for each paragraph, heading, list item and table row, in which
    white space is folded, without the marks of quoted lines."""
    if "\n" not in text and "\r" not in text:
        return " ".join(text.split())
    lines = zip(re.split(r"\r\n?|\n", text), strict=True)
    return "\n".join(" ".join(paragraph.split()) for (paragraph,) in _texts(lines))


def _texts(rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Yield the texts of lines, as `unwrapped` does."""
    held: list[str] = []
    rest: tuple[Any, ...] = ()
    size, depth, is_heading = 0, 0, False
    for row, *others in rows:
        line, outer = row, depth
        if row is not None:
            is_open = size > 0 and not is_heading
            marks, depth = _quotation(_QUOTE.match(row), outer, is_open)
            line = row[marks:]
        blank = line is not None and _RULE.match(line) is not None
        if size and (blank or is_heading or depth != outer or _BEGINS.match(line or "")):
            yield _joined(held, size), *rest
            held, size = [], 0
        if blank:
            continue
        if not size:
            rest = tuple(others)
        is_heading = _HEADING.match(line or "") is not None
        size += 1 + (MOST_LINE_BYTES if line is None else len(line))
        if size <= MOST_LINE_BYTES:
            held.append(line)
        else:
            held = []
    if size:
        yield _joined(held, size), *rest


def _quotation(marks: re.Match[str] | None, outer: int, is_open: bool) -> tuple[int, int]:
    """Return the length of the marks before a quoted line, and their number.

    outer: the number before the line above. is_open: whether that line may go on in this one. Then
    the mark in "more\n> 5" is a sign.
    """
    if marks is None or (is_open and not outer and marks[2]):
        return 0, 0
    return marks.end(), marks[1].count(marks[1][:1])


def _joined(lines: list[str], size: int) -> str | None:
    if size > MOST_LINE_BYTES:
        return None
    joined: str = _NO_BLANK.sub("", "\n".join(map(str.strip, lines)))
    return joined.replace("\n", " ")


def looks_wrapped(head: bytes) -> bool:
    """Return whether lines at the beginning of a file are full and end within a sentence.

    A line is full if the first word of the next one would make it longer than all others up to the
    next blank line. So a list of queries in lower case does not look wrapped.
    """
    pairs = continued = ends = 0
    for block in _BLANK.split(head.decode("utf-8", "ignore")):
        lines = [line for line in block.split("\n") if line]
        width = max(map(len, lines), default=0)
        ends += sum(_SENTENCE_END.search(line) is not None for line in lines)
        for line, following in pairwise(lines):
            word = _LOWER.match(following)
            full = word is not None and len(line) + 1 + len(word[1]) > width
            pairs, continued = pairs + 1, continued + (full and not _ENDS.search(line))
    return continued >= max(LEAST_LINES, LEAST_SHARE * pairs) and ends >= LEAST_ENDS * pairs
