"""Guess the encoding of lines that are not UTF-8 from their non-ASCII bytes.

The guess is only shown to the user, with an example line; no input is read with it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass

# The guess uses at most BAD_LINES bad lines, from the first MOST_LINES lines.
BAD_LINES, MOST_LINES = 200, 200_000
SHOWN_CHARACTERS = 60
# Least share of plausible characters with which an encoding is suggested.
LEAST_SHARE = 0.6
# A later candidate is preferred only if its share is higher by more than this.
MARGIN = 0.05


@dataclass(frozen=True)
class Guess:
    """The likely encoding of a text that is not UTF-8.

    encoding: None if no candidate fits. example: part of a bad line, decoded, around its first
    non-ASCII byte. mixed: whether other non-ASCII lines are UTF-8, which the encoding would garble.
    """

    encoding: str | None
    example: str
    mixed: bool


def guess_encoding(lines: Iterable[bytes | None]) -> Guess | None:
    """Return the likely encoding of the lines that are not UTF-8; None if all are UTF-8."""
    bad: list[bytes] = []
    mixed = False
    for number, line in enumerate(lines):
        if len(bad) == BAD_LINES or number == MOST_LINES:
            break
        if line is None or line.isascii():
            continue
        try:
            line.decode("utf-8")
            mixed = True
        except UnicodeDecodeError as error:
            bad.append(line[max(0, error.start - 400) : error.start + 400])
    if not bad:
        return None
    encoding = _likeliest(b"\n".join(bad))
    return Guess(encoding, _example(bad[0], encoding), mixed)


def _likeliest(text: bytes) -> str | None:
    high = sum(byte >= 0x80 for byte in text)
    latin = sum(chr(byte).isalpha() for byte in text if byte < 0x80)
    candidates = LATIN if high < latin else OTHERS
    shares = {name: _share(text, name, fits) for name, fits in candidates.items()}
    most = max(shares.values())
    if most < LEAST_SHARE:
        return None
    best = next(name for name, share in shares.items() if share >= most - MARGIN)
    if best == "cp1252" and not any(0x80 <= byte < 0xA0 for byte in text):
        return "latin-1"  # equal for these characters, and better known
    return best


def _share(text: bytes, encoding: str, fits: Callable[[str], bool]) -> float:
    """Return the share of non-ASCII characters that are plausible; 0 if bytes are invalid.

    A few invalid bytes are allowed, since an excerpt may begin or end inside a character.
    """
    decoded = text.decode(encoding, "replace")
    beyond = [character for character in decoded if not character.isascii()]
    if not beyond or decoded.count("\ufffd") > 0.02 * len(beyond):
        return 0.0
    share = sum(map(fits, beyond)) / len(beyond)
    return min(1.0, KANA_WEIGHT * share) if fits is _is_kana else share


def _is_western(character: str) -> bool:
    """Return whether a character is a letter or common punctuation."""
    return (character.isalpha() and character not in "\u00aa\u00ba") or character in PUNCTUATION


PUNCTUATION = (
    "\u00a1\u00bf\u2018\u2019\u201a\u201c\u201d\u201e\u2013\u2014\u2026\u2022"
    "\u20ac\u00a3\u00a7\u00a0\u00ab\u00bb\u00b0\u00a9\u00ae\u2122"
)


def _is_small_of(script: str) -> Callable[[str], bool]:
    """Return a test for lower-case letters of a script: a wrong code page gives mostly capitals."""
    return lambda c: c.islower() and unicodedata.name(c, "").startswith(script)


def _is_in(*ranges: tuple[str, str]) -> Callable[[str], bool]:
    return lambda c: any(first <= c <= last for first, last in ranges)


_is_kana = _is_in(("\u3040", "\u30fc"), ("\u3001", "\u3002"))
# At least a third of Japanese text is kana; the rest could also be Chinese.
KANA_WEIGHT = 3.0
# Candidates with their tests; the earlier one wins a tie.
LATIN: dict[str, Callable[[str], bool]] = {"cp1252": _is_western, "cp1250": _is_western}
OTHERS: dict[str, Callable[[str], bool]] = {
    "cp1251": _is_small_of("CYRILLIC"),
    "koi8-r": _is_small_of("CYRILLIC"),
    "cp1253": _is_small_of("GREEK"),
    "shift_jis": _is_kana,
    "euc_jp": _is_kana,
    "euc_kr": _is_in(("\uac00", "\ud7a3")),
    "gb18030": _is_in(("\u4e00", "\u9fff"), ("\u3001", "\u3002"), ("\uff01", "\uff1f")),
    "big5": _is_in(("\u4e00", "\u9fff"), ("\u3001", "\u3002"), ("\uff01", "\uff1f")),
}


def _example(line: bytes, encoding: str | None) -> str:
    """Return the text around a line's first non-ASCII byte, with `?` for unprintable characters."""
    first = next((place for place, byte in enumerate(line) if byte >= 0x80), 0)
    shown = line[max(0, first - SHOWN_CHARACTERS // 2) :].decode(encoding or "ascii", "replace")
    shown = " ".join(shown[:SHOWN_CHARACTERS].split())
    return "".join(c if c.isprintable() else "?" for c in shown)
