"""Texts of users put into Markdown and YAML so that they cannot become anything else there.

GitHub's Markdown (the specification of GFM 0.29, CommonMark 0.29) and YAML 1.2. A code span ends at
a run of backticks as long as the one that began it, and a table's cell ends at a bar even inside a
code span.
"""

from __future__ import annotations

import html
import json
import re

from cotbert_core.messages.printable import printable

# A blank, so that an empty span is one at all.
_EMPTY = " "
# A bracket alone is none: [CLS] stays as it is.
_MARKS = re.compile(r"[\\`*~$]|\](?=[(\[:])|(?<![^\W_])_|_(?![^\W_])")
_RUNS = re.compile(r"`+")


def code(text: object) -> str:
    """Return a text as a code span that fits into a table's cell."""
    line = _one_line(text)
    if "\\" in line and "|" in line:
        # A bar is escaped by a backslash, and one that stands before it would undo that.
        return f"<code>{_entities(line)}</code>"
    fence = "`" * (1 + max(map(len, _RUNS.findall(line)), default=0))
    # One blank at either end is taken off by the reader.
    edge = " " if not line or line[0] in "` " or line[-1] in "` " else ""
    return f"{fence}{edge}{line or _EMPTY}{edge}{fence}".replace("|", r"\|")


def plain(text: object) -> str:
    """Return a text as one line that Markdown shows as it stands.

    It holds no HTML, no emphasis and no link under another name.
    """
    line = html.escape(_one_line(text), quote=False)
    return _MARKS.sub(lambda mark: "\\" + mark[0], line).replace("|", "&#124;")


def yaml_string(text: object) -> str:
    """Return a text as a quoted YAML value, which is a text whatever it looks like."""
    return printable(json.dumps(_one_line(text), ensure_ascii=False))


def _entities(line: str) -> str:
    """Every sign by its number: Markdown sees no mark in them."""
    return re.sub(r"[^\w\s.,:;=/-]|_", lambda sign: f"&#{ord(sign[0])};", line)


def _one_line(text: object) -> str:
    return printable(" ".join(str(text).splitlines()))
