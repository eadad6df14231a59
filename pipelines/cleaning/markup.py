"""Remove HTML, Markdown and wiki markup from a text, keeping the marked text and its lines.

This is not a parser: a row of a corpus is seldom a whole document, and prose has characters that
only look like markup. Only unambiguous markup is removed: tags of HTML or MediaWiki elements whose
attributes have values, entities that end in a semicolon, and balanced marks around a text.
`a < b and c > d`, `<3`, `List<String>`, `2 * 3 * 4` and `snake_case_name` stay. Every pattern takes
linear time, on broken markup too.
"""

from __future__ import annotations

import html
import re
from functools import partial
from html.entities import html5

# Elements whose tags end a sentence.
_BLOCKS = (
    "address|article|aside|blockquote|body|br|caption|center|dd|details|dialog|div|dl|dt|fieldset|"
    "figcaption|figure|footer|form|gallery|h[1-6]|head|header|hr|html|legend|li|main|menu|nav|ol|p|"
    "poem|pre|references|section|summary|table|tbody|tfoot|thead|title|tr|ul"
)
# Elements whose tags end a word. The tags of all others can be inside a word: H<sub>2</sub>O.
_SPACED = (
    "col|colgroup|iframe|img|input|object|optgroup|option|picture|select|source|td|template|"
    "textarea|th|video"
)
_INLINE = (
    "a|abbr|acronym|audio|b|bdi|bdo|big|button|canvas|cite|code|data|del|dfn|em|font|i|includeonly|"
    "ins|kbd|label|link|mark|math|meta|meter|noinclude|noscript|nowiki|onlyinclude|output|progress|"
    "q|ref|rp|rt|ruby|s|samp|script|small|span|strike|strong|style|sub|sup|svg|time|tt|u|var|wbr"
)
_FLAGS = "allowfullscreen|async|checked|controls|defer|disabled|hidden|nowrap|noshade|selected"
_ATTRIBUTES = (
    r"(?:\s+(?:[\w:.@-]+\s*+=\s*+(?:\"[^\"]*+\"|'[^']*+'|[^\s\"'<>]++)"
    rf"|(?i:{_FLAGS})(?=[\s/>])))*+"
)
# In one case, unlike the types of List<Object> and Optional<Address>.
_NAMES = rf"({_BLOCKS}|{_BLOCKS.upper()})|({_SPACED}|{_SPACED.upper()})|{_INLINE}|{_INLINE.upper()}"
_TAG = re.compile(rf"</?(?:{_NAMES}){_ATTRIBUTES}\s*+/?>")
# Elements without text of their own, and comments. One that is never closed stays; the search for
# its end stops at the next one, because many of them would otherwise take quadratic time.
_HIDDEN = re.compile(
    rf"<(script|style|ref){_ATTRIBUTES}\s*+(?<!/)>[^<]*+(?:<(?!/?\1\b)[^<]*+)*+</\1\s*+>"
    r"|<!--(?:[^<-]++|<(?!!--)|-(?!->))*+-->|<!doctype[^<>]*+>|<\?xml[^<>]*+>",
    re.IGNORECASE,
)
_ENTITY = re.compile(r"&(#\d{1,7}|#[xX][\da-fA-F]{1,6}|[a-zA-Z][a-zA-Z\d]{1,31});")

_ADDRESS = r"(?=[^()\s]{0,300}[./#:])(?:[^()\s]|\([^()\s]{0,300}\)){1,2000}"
_IMAGE = re.compile(rf"!\[[^\[\]]{{0,300}}\]\({_ADDRESS}(?:\s+\"[^\"]{{0,300}}\")?\)")
# An index such as a[i](j.k) or x[[name]] follows an ASCII word. A link may follow the letters of a
# script without blanks.
_NO_INDEX = "(?<![A-Za-z0-9_])"
_LINK = re.compile(rf"{_NO_INDEX}\[([^\[\]]{{1,300}})\]\({_ADDRESS}(?:\s+\"[^\"]{{0,300}}\")?\)")
# Requiring a letter leaves arrays such as [[1, 2]] unchanged, and no blank or quote those of texts
# and the tests of shells: if [[ -f file ]].
_WIKI_LINK = re.compile(
    rf"{_NO_INDEX}\[\[(?![\s\"'])(?:[^\[\]|]{{0,300}}\|)?"
    r"(?=[^\[\]|]*?[^\W\d_])([^\[\]|]{1,300})\]\]"
)
_WIKI_FILE = re.compile(r"\[\[(?:File|Image|Category):[^\[\]]*+\]\]", re.IGNORECASE)
_WIKI_ADDRESS = re.compile(r"\[(?:https?:|ftp:)?//[^\s\[\]]{1,2000} ([^\[\]]{1,300})\]")
_LINE_MARK = re.compile(r"^(?:#{1,6}|\*) +(?=\S)", re.MULTILINE)

# Every text with markup has one of these characters, or one of the two strings that remove_markup
# tests separately: `re` searches a character set four times as fast as alternatives.
_SUSPECT = re.compile(r"[<&\[*_~`]")


def remove_markup(text: str, between_blocks: str = " ") -> str:
    """Return the text without markup; there may be double blanks in its place.

    between_blocks: what is put in place of a tag that separates sentences.
    """
    if not (_SUSPECT.search(text) or "''" in text or text.startswith("#") or "\n#" in text):
        return text
    if "<" in text:
        in_place = partial(_in_place_of_tag, between_blocks=between_blocks)
        text = _TAG.sub(in_place, _HIDDEN.sub("", text))
    if "[" in text:
        text = _remove_links(text)
    text = _LINE_MARK.sub("", text)
    for mark, pattern in _EMPHASIS.items():
        if mark in text:
            # Applied twice, since bold text may contain italics.
            text = pattern.sub(r"\2", pattern.sub(r"\2", text))
    # Entities are decoded last, and only once: &lt;b&gt; is text about a tag.
    return _ENTITY.sub(_character, text) if "&" in text else text


def _in_place_of_tag(tag: re.Match[str], between_blocks: str) -> str:
    if tag[1]:
        return between_blocks
    return " " if tag[2] else ""


def _remove_links(text: str) -> str:
    text = _LINK.sub(r"\1", _IMAGE.sub("", text))
    text = _WIKI_ADDRESS.sub(r"\1", text)
    # First the files whose captions have no links, then, after links are removed, the others.
    text = _WIKI_LINK.sub(r"\1", _WIKI_FILE.sub("", text))
    return _WIKI_FILE.sub("", text)


def _character(entity: re.Match[str]) -> str:
    """Return the character, or a blank for a line feed, which would end a sentence."""
    if entity[1].startswith("#"):
        return html.unescape(entity[0]).replace("\n", " ")
    # html.unescape would read &notify; as the "not" sign followed by "ify;".
    return html5.get(f"{entity[1]};", entity[0]).replace("\n", " ")


def _emphasis(mark: str, times: str, content: str, unless: str = "") -> re.Pattern[str]:
    """Return a pattern for a text between equal runs of a mark, outside words and without inner
    blanks at its ends. unless: a lookahead before the text."""
    return re.compile(
        rf"(?<![\w{mark}]){unless}({mark}{times})(?![\s{mark}])"
        rf"({content}{{1,300}}?)(?<![\s{mark}])\1(?![\w{mark}])"
    )


_EMPHASIS = {
    "*": _emphasis(r"\*", "{1,3}", r"[^*]"),
    # Python's names, as in ``__init__``, are more frequent than one bold word in small letters.
    "_": _emphasis("_", "{1,3}", "[^_]", unless="(?!__[a-z]{2,}__)"),
    "~": _emphasis("~", "{2}", "[^~]"),
    "`": _emphasis("`", "{1,3}", "[^`]"),
    # The text may contain single apostrophes. ``LaTeX quotes'' open with backticks.
    "''": _emphasis("'", "{2,5}", r"(?:[^'`]|'(?!'))"),
}
