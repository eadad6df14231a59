"""Remove HTML, Markdown and wiki marks from a text of one line; the marked text stays.

This is no parser: a row of a corpus is seldom a whole document, and prose holds signs that only
look like markup. So only certain markup is removed: tags of elements that HTML or MediaWiki know,
with attributes that have a value; entities that end in a semicolon; marks that open and close
around something. `a < b and c > d`, `<3`, `List<String>`, `2 * 3 * 4` and `snake_case_name` stay.
Every pattern takes time in proportion to the length of the text, on broken markup too.
"""

from __future__ import annotations

import html
import re
from html.entities import html5

# Elements that end a word; the others can be inside one: H<sub>2</sub>O.
_BLOCKS = (
    "address|article|aside|blockquote|body|br|caption|center|col|colgroup|dd|details|dialog|div|dl|"
    "dt|fieldset|figcaption|figure|footer|form|gallery|h[1-6]|head|header|hr|html|iframe|img|input|"
    "legend|li|main|menu|nav|object|ol|optgroup|option|p|picture|poem|pre|references|section|"
    "select|source|summary|table|tbody|td|template|textarea|tfoot|th|thead|title|tr|ul|video"
)
_INLINE = (
    "a|abbr|acronym|audio|b|bdi|bdo|big|button|canvas|cite|code|data|del|dfn|em|font|i|includeonly|"
    "ins|kbd|label|link|mark|math|meta|meter|noinclude|noscript|nowiki|onlyinclude|output|progress|"
    "q|ref|rp|rt|ruby|s|samp|script|small|span|strike|strong|style|sub|sup|svg|time|tt|u|var|wbr"
)
_FLAGS = "allowfullscreen|async|checked|controls|defer|disabled|hidden|nowrap|noshade|selected"
_ATTRIBUTES = (
    r"(?:\s+(?:[\w:.@-]+\s*+=\s*+(?:\"[^\"]*+\"|'[^']*+'|[^\s\"'<>]++)"
    rf"|(?:{_FLAGS})(?=[\s/>])))*+"
)
_TAG = re.compile(rf"</?(?:({_BLOCKS})|{_INLINE}){_ATTRIBUTES}\s*+/?>", re.IGNORECASE)
# Whole elements without text of their own, and comments. One that is never closed stays; the search
# for its end stops at the next one, since many of them would take quadratic time otherwise.
_HIDDEN = re.compile(
    rf"<(script|style|ref){_ATTRIBUTES}\s*+(?<!/)>[^<]*+(?:<(?!/?\1\b)[^<]*+)*+</\1\s*+>"
    r"|<!--(?:[^<-]++|<(?!!--)|-(?!->))*+-->|<!doctype[^<>]*+>|<\?xml[^<>]*+>",
    re.IGNORECASE,
)
_ENTITY = re.compile(r"&(#\d{1,7}|#[xX][\da-fA-F]{1,6}|[a-zA-Z][a-zA-Z\d]{1,31});")

_ADDRESS = r"(?=[^()\s]{0,300}[./#:])(?:[^()\s]|\([^()\s]{0,300}\)){1,2000}"
_IMAGE = re.compile(rf"!\[[^\[\]]{{0,300}}\]\({_ADDRESS}(?:\s+\"[^\"]{{0,300}}\")?\)")
_LINK = re.compile(rf"\[([^\[\]]{{1,300}})\]\({_ADDRESS}(?:\s+\"[^\"]{{0,300}}\")?\)")
# The letter keeps arrays, [[1, 2]], as they are.
_WIKI_LINK = re.compile(r"\[\[(?:[^\[\]|]{0,300}\|)?(?=[^\[\]|]*?[^\W\d_])([^\[\]|]{1,300})\]\]")
_WIKI_FILE = re.compile(r"\[\[(?:File|Image|Category):[^\[\]]*+\]\]", re.IGNORECASE)
_WIKI_ADDRESS = re.compile(r"\[(?:https?:|ftp:)?//[^\s\[\]]{1,2000} ([^\[\]]{1,300})\]")
_LINE_MARK = re.compile(r"(?:#{1,6}|\*) +(?=\S)")

# Every text with markup has one of these characters, or one of the two signs that remove_markup
# tests; those are separate because `re` searches for a set of characters four times as fast as for
# alternatives.
_SUSPECT = re.compile(r"[<&\[*_~`]")


def remove_markup(text: str) -> str:
    """Return the text without markup; white space may be doubled where a mark was."""
    if not (_SUSPECT.search(text) or "''" in text or text.startswith("#")):
        return text
    if "<" in text:
        text = _TAG.sub(_in_place_of_tag, _HIDDEN.sub("", text))
    if "[" in text:
        text = _remove_links(text)
    text = _LINE_MARK.sub("", text, count=1) if _LINE_MARK.match(text) else text
    for mark, pattern in _EMPHASIS.items():
        if mark in text:
            # Twice: bold text may hold italics.
            text = pattern.sub(r"\2", pattern.sub(r"\2", text))
    # Last, and only once: &lt;b&gt; is text about a tag.
    return _ENTITY.sub(_character, text) if "&" in text else text


def _in_place_of_tag(tag: re.Match[str]) -> str:
    return " " if tag[1] else ""


def _remove_links(text: str) -> str:
    text = _LINK.sub(r"\1", _IMAGE.sub("", text))
    text = _WIKI_ADDRESS.sub(r"\1", text)
    # First files whose captions hold no link, then, when links are gone, the others.
    text = _WIKI_LINK.sub(r"\1", _WIKI_FILE.sub("", text))
    return _WIKI_FILE.sub("", text)


def _character(entity: re.Match[str]) -> str:
    if entity[1].startswith("#"):
        return html.unescape(entity[0])
    # html.unescape would read &notify; as the sign for "not" and the letters "ify;".
    return html5.get(f"{entity[1]};", entity[0])


def _emphasis(mark: str, times: str, content: str) -> re.Pattern[str]:
    """Return a pattern for equally many marks before and after a text, outside words and with no
    blank inside next to them."""
    return re.compile(
        rf"(?<![\w{mark}])({mark}{times})(?![\s{mark}])"
        rf"({content}{{1,300}}?)(?<![\s{mark}])\1(?![\w{mark}])"
    )


_EMPHASIS = {
    "*": _emphasis(r"\*", "{1,3}", r"[^*]"),
    "_": _emphasis("_", "{1,3}", "[^_]"),
    "~": _emphasis("~", "{2}", "[^~]"),
    "`": _emphasis("`", "{1,3}", "[^`]"),
    # The text may contain single apostrophes. ``LaTeX quotes'' open with other signs.
    "''": _emphasis("'", "{2,5}", r"(?:[^'`]|'(?!'))"),
}
