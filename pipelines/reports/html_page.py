"""HTML pages of reports: one self-contained file each, for any width of screen, light and dark."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from cotbert_core.errors import counted
from cotbert_core.messages.printable import printable
from pipelines.recording.tracking import commit
from pipelines.reports.colours import custom_properties
from pipelines.reports.values import as_typed

# Tables and plots that are wider than the screen scroll in their own boxes, never the page.
_STYLE = f"""
:root {{ color-scheme: light dark; {custom_properties(dark=False)} }}
@media (prefers-color-scheme: dark) {{ :root {{ {custom_properties(dark=True)} }} }}
""" + (
    """
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page);
       max-width: 62rem; margin: 2.5rem auto; padding: 0 1.2rem; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.2; margin-bottom: .2rem; }
h2 { font-size: 1.15rem; margin-top: 2.2rem; }
.note { color: var(--muted); }
.option { white-space: nowrap; }
.box { overflow-x: auto; }
.box > svg { display: block; max-width: 100%; min-width: 42rem; height: auto; }
.plots { display: grid; gap: 1rem 1.2rem; margin: .6rem 0;
         grid-template-columns: repeat(auto-fit, minmax(min(100%, 18rem), 1fr)); }
.plots svg { width: 100%; height: auto; overflow: visible; }
svg use { pointer-events: all; }
.legend { display: flex; flex-wrap: wrap; gap: .1rem 1.2rem; padding: 0; list-style: none;
          font-size: .9rem; }
.legend li { display: flex; align-items: center; gap: .4rem; }
.legend svg { flex: none; width: 1.7rem; height: 1.2rem; }
table { border-collapse: collapse; margin: .6rem 0; overflow-wrap: normal; }
td, th { padding: .3rem .9rem .3rem 0; border-bottom: 1px solid var(--line); text-align: right;
         vertical-align: top; }
td:first-child, th:first-child, .text td, .text th { text-align: left; }
td + td { white-space: nowrap; } td:first-child { min-width: 7rem; }
.text td + td { white-space: normal; overflow-wrap: anywhere; min-width: 7rem; }
summary { cursor: pointer; padding: .3rem 0; color: var(--muted); }
code, pre { background: var(--box); padding: .1rem .3rem; }
pre { padding: .8rem; overflow-x: auto; }
@media (max-width: 30rem) {
  body { margin: 1.2rem auto; padding: 0 .9rem; }
}
@media print {
  .box { overflow: visible; }
  table { font-size: .6rem; } td, th { padding-right: .3rem; }
  td + td { white-space: normal; } td:first-child { min-width: 0; }
  h2 { break-after: avoid; } svg, tr { break-inside: avoid; }
  details::details-content { content-visibility: visible; }
}
"""
)

Section = tuple[str, str]
# Rows of a long list that are shown at once; the others are folded below them.
ROWS_SHOWN = 30
_OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")
_BEFORE_PERCENT = re.compile(r"(?<=\d) (?=%)")
# Cells without a value.
_EMPTY = ("", "-")


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


def paragraphs(sentences: Iterable[str], kind: str = "") -> str:
    """Return each sentence as an HTML paragraph. kind: a CSS class, such as "note"."""
    tag = f'<p class="{kind}">' if kind else "<p>"
    return "".join(f"{tag}{escaped(sentence)}</p>\n" for sentence in sentences)


def escaped(sentence: str) -> str:
    """Return a sentence as HTML in which no line ends between the hyphens of an option and its
    name, or between a number and its percent sign."""
    text = _OPTION.sub(r'<span class="option">\g<0></span>', html.escape(sentence))
    return _BEFORE_PERCENT.sub("&nbsp;", text)


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[Any]],
    kind: str = "",
    shown: int | None = None,
) -> str:
    """Return an HTML table without the columns that are empty in all rows.

    kind: "text" aligns all columns to the left. shown: number of rows before a fold that holds the
    others; None shows all.
    """
    cells = [[as_typed(value) for value in row] for row in rows]
    filled = [
        place
        for place in range(len(header))
        if not cells or any(row[place] not in _EMPTY for row in cells)
    ]
    names, *lines = ([row[place] for place in filled] for row in [header, *cells])
    if shown is None or len(lines) <= shown:
        return _table(names, lines, kind)
    summary = f"<summary>{counted(len(lines) - shown, 'more row')}</summary>"
    folded = f"<details>{summary}{_table(names, lines[shown:], kind)}</details>"
    return _table(names, lines[:shown], kind) + folded


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], kind: str) -> str:
    def line(tag: str, values: Sequence[str]) -> str:
        return "".join(f"<{tag}>{html.escape(v)}</{tag}>" for v in values)

    head = f"<tr>{line('th', header)}</tr>\n" if any(header) else ""
    body = "".join(f"<tr>{line('td', row)}</tr>\n" for row in rows)
    return f'<div class="box"><table class="{kind}">{head}{body}</table></div>'


def plots(svgs: Iterable[str]) -> str:
    """Return plots side by side where the screen is wide enough, otherwise below each other."""
    return f'<div class="plots">{"".join(svgs)}</div>'
