"""HTML pages of reports: one self-contained file each."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from cotbert_core.messages.printable import printable
from pipelines.recording.tracking import commit

# A section that is wider than a telephone scrolls by itself; its plots stay large enough to read.
_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1f2933; max-width: 62rem; margin: 2.5rem auto;
       padding: 0 1.2rem; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
section { overflow-x: auto; } svg { max-width: 100%; min-width: 22rem; height: auto; }
.note { color: #616e7c; }
table { border-collapse: collapse; margin: .6rem 0; } td, th { padding: .3rem .9rem .3rem 0;
       border-bottom: 1px solid #e3e7eb; text-align: right; vertical-align: top; }
td:first-child, th:first-child, .text td, .text th { text-align: left; }
code, pre { background: #f5f7fa; padding: .1rem .3rem; } pre { padding: .8rem; overflow-x: auto; }
@media (prefers-color-scheme: dark) {
  body { background: #15191e; color: #e4e7eb; } .note { color: #9aa5b1; }
  td, th { border-color: #3e4c59; } code, pre { background: #1f2933; }
}
"""

Section = tuple[str, str]


def page(title: str, note: str, sections: Sequence[Section]) -> str:
    """Return a page of (heading, HTML) sections, without characters that change text direction."""
    body = "".join(
        f"<section><h2>{html.escape(head)}</h2>\n{content}</section>\n"
        for head, content in sections
    )
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return printable(
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head><body>\n"
        f"<h1>{html.escape(title)}</h1>\n"
        f'<p class="note">{html.escape(note)} Made {made}, code {commit()}.</p>\n'
        f"{body}</body></html>\n"
    )


def paragraphs(sentences: Iterable[str]) -> str:
    """Return each sentence as an HTML paragraph."""
    return "".join(f"<p>{html.escape(sentence)}</p>" for sentence in sentences)


def table(header: Sequence[str], rows: Sequence[Sequence[Any]], kind: str = "") -> str:
    """Return an HTML table; kind "text" aligns all columns to the left."""

    def cells(tag: str, values: Sequence[Any]) -> str:
        return "".join(f"<{tag}>{html.escape(str(v))}</{tag}>" for v in values)

    lines = "".join(f"<tr>{cells('td', row)}</tr>\n" for row in rows)
    return f'<table class="{kind}"><tr>{cells("th", header)}</tr>\n{lines}</table>'
