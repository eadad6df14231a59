"""Control and direction characters, and the texts that must stay as they are."""

from __future__ import annotations

import json
import unicodedata

import pytest

from cotbert_core.messages.printable import printable

HOSTILE = {
    "clear screen": "\x1b[2J\x1b[H",
    "C1 introducer": "\x9b2J\x9d0;owned\x9c",
    "delete": "a\x7fb",
    "override": "user\u202egnp.exe\u202c",
    "isolates": "\u2066a\u2067b\u2068c\u2069",
    "marks": "a\u200eb\u200fc\u061cd",
    "separators": "a\u2028b\u2029c",
    "half of a pair": "name-\udcff.txt",
    "null": "a\x00b",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_nothing_that_a_terminal_obeys_is_left(text):
    shown = printable(text)
    assert all(unicodedata.category(c)[0] != "C" or c in "\n\t" for c in shown), repr(shown)
    assert unicodedata.bidirectional("\u202e") not in map(unicodedata.bidirectional, shown)
    shown.encode()
    line = printable(json.dumps(text, ensure_ascii=False))
    assert json.loads(line) == text, "a line of JSON stays one"


@pytest.mark.parametrize(
    "text", ["a\tb\nc", "שלום עולם", "مرحبا", "naïve 𝔘𝔫𝔦 👩‍👩‍👧", "a\\x1b\\u202e", "", "￼�"]
)
def test_texts_of_all_scripts_stay(text):
    assert printable(text) == text
