"""Text from other people made safe to show: control and direction characters are escaped.

A terminal obeys escape sequences: they clear the screen, set its title and write the clipboard. A
direction override makes a text look like another text. Both are shown by their four-digit Unicode
escapes, the same as in JSON, so a printed JSON line stays JSON.
"""

from __future__ import annotations

import re

# C0 without tab and newline, DEL and C1; the marks, embeddings, overrides and isolates of Unicode's
# bidirectional algorithm (UAX 9); the line separators; and codes that no file can hold: surrogates
# and two noncharacters.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ufeff"
    "\ufff9-\ufffb\ufffe\uffff\ud800-\udfff]"
)


def printable(text: object) -> str:
    """Return str(text) with its control and direction characters as Unicode escapes.

    Newlines, tabs and the letters of every script, such as Hebrew and Arabic, are not changed.
    """
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", str(text))


def shortened(text: str, most: int) -> str:
    """Return a text of at most `most` characters, which ends in three full stops if it was cut."""
    return text if len(text) <= most else f"{text[: most - 3]}..."
