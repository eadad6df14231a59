"""Escaping of users' texts in Markdown and YAML, so that they are shown as plain text.

The rules are GitHub's Markdown (the specification of GFM 0.29, CommonMark 0.29) and YAML 1.2. A
code span ends at a run of backticks as long as the one that began it, and a table cell ends at a
bar even inside a code span.
"""

from __future__ import annotations

import html
import json
import re

from cotbert_core.messages.printable import printable

# An empty code span needs a blank.
_EMPTY = " "
# A closing bracket is only a mark before ( [ or a colon: [CLS] is not changed.
_MARKS = re.compile(r"[\\`*~$]|\](?=[(\[:])|(?<![^\W_])_|_(?![^\W_])")
_RUNS = re.compile(r"`+")


def code(text: object) -> str:
    """Return a text as a code span that can be used in a table cell."""
    line = _one_line(text)
    if "\\" in line and "|" in line:
        # A backslash escapes a bar, and another backslash before it would undo that.
        return f"<code>{_entities(line)}</code>"
    fence = "`" * (1 + max(map(len, _RUNS.findall(line)), default=0))
    # Markdown removes one blank at each end.
    edge = " " if not line or line[0] in "` " or line[-1] in "` " else ""
    return f"{fence}{edge}{line or _EMPTY}{edge}{fence}".replace("|", r"\|")


def plain(text: object) -> str:
    """Return a text as one line that Markdown shows literally: no HTML, emphasis or links."""
    line = html.escape(_one_line(text), quote=False)
    return _MARKS.sub(lambda mark: "\\" + mark[0], line).replace("|", "&#124;")


def yaml_string(text: object) -> str:
    """Return a text as a quoted YAML value, which YAML always reads as a text."""
    return printable(json.dumps(_one_line(text), ensure_ascii=False))


def _entities(line: str) -> str:
    """Return a line with every sign as a numeric entity, which is not a mark in Markdown."""
    return re.sub(r"[^\w\s.,:;=/-]|_", lambda sign: f"&#{ord(sign[0])};", line)


def _one_line(text: object) -> str:
    return printable(" ".join(str(text).splitlines()))
