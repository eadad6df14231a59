"""Text of other people made safe to show: control and direction characters are spelled out.

A terminal obeys escape sequences: they clear the screen, set its title and write the clipboard. A
direction override makes a text read as another. Both are shown as \\uXXXX, which is also how JSON
spells them, so a printed JSON line stays JSON.
"""

from __future__ import annotations

import re

# C0 without tab and newline, DEL and C1; the marks, embeddings, overrides and isolates of Unicode's
# bidirectional algorithm (UAX 9); the line separators; and what no file can hold: halves of
# pairs and two codes that are no characters.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ufeff"
    "\ufff9-\ufffb\ufffe\uffff\ud800-\udfff]"
)


def printable(text: object) -> str:
    """Return str(text) with its control and direction characters as \\uXXXX.

    Newlines and tabs stay. Letters of every script stay, so that Hebrew and Arabic read as ever.
    """
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", str(text))
