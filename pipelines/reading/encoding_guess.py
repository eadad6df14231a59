"""Guess the encoding of lines that are not UTF-8, with charset-normalizer.

The guess is only shown to the user, with an example line; no input is read with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

# The guess uses at most BAD_LINES bad lines, from the first MOST_LINES lines, and of a line longer
# than MOST_BYTES only what is around its first bad byte.
BAD_LINES, MOST_LINES, MOST_BYTES = 200, 200_000, 4096
SHOWN_CHARACTERS = 60
# The encodings that are tried. Of equally likely ones the first is suggested: a few letters of
# western text, such as `café`, are the same or plausible in many encodings.
ENCODINGS = (
    *("latin-1", "cp1252", "cp1250", "cp1251", "koi8-r", "cp1253"),
    *("shift_jis", "euc_jp", "euc_kr", "gb18030", "big5"),
)
SIMILAR = ENCODINGS[:3]


@dataclass(frozen=True)
class Guess:
    """The likely encoding of a text that is not UTF-8.

    encoding: None if none of ENCODINGS fits. example: part of a bad line, decoded, around its first
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
            around = max(0, error.start - MOST_BYTES // 2)
            bad.append(line if len(line) <= MOST_BYTES else line[around : around + MOST_BYTES])
    if not bad:
        return None
    encoding = _likeliest(b"\n".join(bad))
    return Guess(encoding, _example(_telling(bad, encoding), encoding), mixed)


def _likeliest(text: bytes) -> str | None:
    from charset_normalizer import from_bytes

    matches = from_bytes(text, cp_isolation=list(ENCODINGS))
    best = matches.best()
    if best is None:
        return None
    likely = {
        name
        for match in matches
        if match.chaos <= best.chaos and match.coherence >= best.coherence
        for name in match.could_be_from_charset
    }
    return next((name for name in ENCODINGS if name.replace("-", "_") in likely), None)


def _telling(lines: list[bytes], encoding: str | None) -> bytes:
    """Return a line that shows whether the guess is right: in Portuguese `n\u00e3o` of latin-1 is
    `n\u0103o` in cp1250, and most other letters are the same."""
    others = {*SIMILAR} - {encoding} if encoding in SIMILAR else ()

    def tells(line: bytes) -> bool:
        guessed = line.decode(encoding or "ascii", "replace")
        return any(line.decode(other, "replace") != guessed for other in others)

    return next(filter(tells, lines), lines[0])


def _example(line: bytes, encoding: str | None) -> str:
    """Return the text around a line's first non-ASCII byte, with `?` for unprintable characters."""
    first = next((place for place, byte in enumerate(line) if byte >= 0x80), 0)
    shown = line[max(0, first - SHOWN_CHARACTERS // 2) :].decode(encoding or "ascii", "replace")
    shown = " ".join(shown[:SHOWN_CHARACTERS].split())
    return "".join(c if c.isprintable() else "?" for c in shown)
