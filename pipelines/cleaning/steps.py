"""The steps of cleaning: functions from a text to the changed text.

A text has single blanks, as `pipelines.reading.readers` yields it, before and after a step. It is
one line, or a line for each paragraph if it will be split into sentences. A step that changes
nothing returns the same object, after one cheap test: most texts of a corpus are clean, and
cleaning shares a core with a tokenizer.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import partial

from pipelines.cleaning.markup import remove_markup

UNK = "<unk>"


def fold(text: str) -> str:
    """Return the text stripped and with single blanks, without its empty lines."""
    if "\n" not in text:
        return " ".join(text.split())
    return "\n".join(filter(None, (" ".join(line.split()) for line in text.split("\n"))))


def _unless_equal(text: str, changed: str) -> str:
    """Return the changed text folded, or the object `text` itself if both are equal."""
    changed = fold(changed)
    return text if changed == text else changed


def wikitext(text: str) -> str:
    """Undo the tokenization of the WikiText corpora and drop headings.

    `<unk>` stays in place of a missing word; a filter then drops the text or sentence.
    """
    if "\n" in text:
        return _unless_equal(text, "\n".join(map(wikitext, text.split("\n"))))
    if text.startswith("= ") and text.endswith(" ="):
        return ""
    if not _TOKENIZED.search(text):
        return text
    undone = text
    for pattern, replacement in _UNDONE:
        undone = pattern.sub(replacement, undone)
    if undone.count('"') % 2 == 0:  # an odd number is ambiguous
        undone = _QUOTED.sub(r'"\1"', undone)
    return _unless_equal(text, undone)


# A blank on the wrong side of a punctuation mark; every WikiText sentence has one. Quotation marks
# are left out, since they have blanks beside them in any text. The pattern begins with the blank,
# for which `re` searches fast.
_TOKENIZED = re.compile(r" (?:[@,.;:!?%)\]]|'[stmdvrl]|(?<=[(\[$£€] ))")
_UNDONE = (
    # Without the blank, a splitter would see the end of a sentence in 4.<unk>.
    (re.compile(r" @\.@ (?=<unk>)"), " "),
    (re.compile(r" @([-,.])@ "), r"\1"),
    (re.compile(r" (?='(?:s|t|m|d|ve|re|ll)\b)"), ""),
    (re.compile(r"(?<=s) (?=' )"), ""),  # the lobsters ' claws
    (re.compile(r" (?=(?:[,.;:!?%)\]]|\.{2,4})(?: |$))"), ""),
    (re.compile(r"(?<=[(\[]) "), ""),
    (re.compile(r"(?<=[$£€]) (?=\d)"), ""),
)
_QUOTED = re.compile(r'" ?([^"]*?) ?"')


def markup(text: str, between_blocks: str = " ") -> str:
    """Remove HTML, Markdown and wiki marks, keep the marked text, decode entities.

    between_blocks: what is put in place of a tag that separates sentences.
    """
    plain = remove_markup(text, between_blocks)
    return text if plain is text else _unless_equal(text, plain)


def urls(text: str) -> str:
    """Remove web and e-mail addresses, and brackets that hold nothing else.

    They are removed rather than replaced, since a common replacement would make unrelated sentences
    similar. A name like example.com without http:// or www. stays, because Node.js must.
    """
    if "://" not in text and "@" not in text and "www." not in text and "WWW." not in text:
        return text
    return _unless_equal(text, _MARKED.sub("", _ADDRESS.sub(_mark_address, text)))


# A placeholder for an address until the text around it is tidied, reserved by Unicode for internal
# use.
_MARK = "\ufdd0"
# Letters of all scripts except Thai, Lao, Burmese, Khmer, kana, Chinese and Korean, in which text
# may follow an address without a blank.
_LETTER = r"[^\W\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
_ADDRESS = re.compile(
    rf"(?<![A-Za-z0-9])(?:(?:https?|ftps?)://|www\.(?=\w))(?:{_LETTER}|[-._~:/?#@!$&'()*+,;=%\[\]|])++"
    rf"|(?<!{_LETTER})(?<![.+%-])(?:mailto:)?(?:{_LETTER}|[.+%-]){{1,64}}@"
    # The name of a top-level domain has letters only, unlike the 0 of react@18.2.0.
    r"[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})*\.[A-Za-z]{2,63}(?![A-Za-z0-9])",
    re.IGNORECASE,
)
_MARKED = re.compile(rf" ?[(\[<]{_MARK}[)\]>]| ?{_MARK}(?=[.,;:!?)\]])|{_MARK}")


def _mark_address(address: re.Match[str]) -> str:
    """Return the mark, followed by the characters that end the sentence rather than the address."""
    body = address[0].rstrip(".,;:!?'\")]*_")
    tail = address[0][len(body) :]
    while tail.startswith(")") and body.count("(") > body.count(")"):  # .../Paris_(Texas)
        body, tail = body + ")", tail[1:]
    return _MARK + tail


def control(text: str) -> str:
    """Remove control and zero-width characters, soft hyphens, byte-order and direction marks, and
    the codes of a terminal's colours.

    The joiners U+200C and U+200D stay inside emoji and between characters of the scripts that use
    them in spelling (Persian, Indic scripts), and the tags that name a flag (England) stay.
    """
    if text.isprintable():  # False if the text has any of these characters
        return text
    return _unless_equal(text, _INVISIBLE.sub(r"\1", text))


_SPELT = "[\u0300-\u1fff\u2070-\U0010ffff]"
_INVISIBLE = re.compile(
    "(\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{1,6}\U000e007f)"  # a whole flag
    r"|\x1b\[[0-?]*[ -/]*[@-~]"  # ESC [ 31 m and the like
    "|[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e"
    "\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
    f"|(?<!{_SPELT})[\u200c\u200d]|[\u200c\u200d](?!{_SPELT})"
)


def nfc(text: str) -> str:
    """Normalize to NFC, which composes letters and their accents.

    NFKC would change the meaning: it turns 10⁶ into 106 and ½ into 1⁄2. Text decoded with the wrong
    encoding is not repaired.
    """
    if text.isascii() or unicodedata.is_normalized("NFC", text):
        return text
    return unicodedata.normalize("NFC", text)


# The steps in the order in which they are applied, whatever order the user gives: WikiText's marks
# before markup, addresses after the links that contain them, and characters last, since decoded
# entities add more of them.
STEPS: dict[str, Callable[[str], str]] = {
    "wikitext": wikitext,
    "markup": markup,
    "urls": urls,
    "control": control,
    "unicode": nfc,
}
# The steps for texts that will be split into sentences: the end of a line ends a sentence.
STEPS_BEFORE_SPLIT: dict[str, Callable[[str], str]] = {
    **STEPS,
    "markup": partial(markup, between_blocks="\n"),
}


def cleaning(steps: Sequence[str]) -> Callable[[str], str] | None:
    """Return the function that applies these steps to a text; None if there are none."""
    return partial(_clean, tuple(steps)) if steps else None


def _clean(steps: Sequence[str], text: str) -> str:
    for name in steps:
        text = STEPS[name](text)
    return text
