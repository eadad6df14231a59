"""The likely encoding of text that is not UTF-8, by sentences of eight languages."""

from __future__ import annotations

import random

import pytest

from pipelines.reading.encoding_guess import guess_encoding

FRENCH = "Le café est fermé.\nUn garçon naïf\nplain\nel niño comió mañana, ¿qué?\nÜber die Straße"
TYPED = "He said “no” – that’s it…\nIt’s five € today at the café"
POLISH = "Zażółć gęślą jaźń, proszę bardzo\nWszyscy ludzie są równi"
RUSSIAN = "Две собаки бегут по полю\nПривет, мир"
GREEK = "Δύο σκυλιά τρέχουν στο χωράφι\nΚαλημέρα κόσμε"
JAPANESE = "二匹の犬が野原を走っている。\nこんにちは、世界"
KOREAN = "개 두 마리가 들판을 달린다\n안녕 세상"
CHINESE = "两只狗在田野上奔跑，孩子们看着它们。\n你好，世界"


@pytest.mark.parametrize(
    ("text", "encoding"),
    [(FRENCH, "latin-1"), (TYPED, "cp1252"), (POLISH, "cp1250"), (RUSSIAN, "cp1251"),
     (RUSSIAN, "koi8-r"), (GREEK, "cp1253"), (JAPANESE, "shift_jis"), (JAPANESE, "euc_jp"),
     (KOREAN, "euc_kr"), (CHINESE, "gb18030"), ("café", "latin-1"), ("It’s five", "cp1252")],
)  # fmt: skip
def test_what_text_is_in_is_named(text, encoding):
    guess = guess_encoding(text.encode(encoding).split(b"\n"))
    assert guess.encoding == encoding
    assert not guess.mixed
    assert guess.example[-12:] in text


def test_the_example_is_a_line_that_tells_similar_encodings_apart():
    """`ã` of latin-1 is `ă` in cp1250, and `ç` is the same in both."""
    guess = guess_encoding([text.encode("latin-1") for text in ("uma cabeça", "isto não", "mão")])
    assert guess.example in ("isto não", "isto năo")


def test_nothing_is_named_for_noise_and_for_utf8():
    noise = random.Random(0)
    guess = guess_encoding([noise.randbytes(100) for _ in range(20)])
    assert guess.encoding is None
    assert guess.example.isprintable()
    assert guess_encoding([*(line.encode() for line in FRENCH.split("\n")), None, b"\x1b"]) is None


def test_utf8_among_other_lines_and_a_strange_byte_in_a_long_line_are_found():
    guess = guess_encoding([*FRENCH.encode("latin-1").split(b"\n"), "café".encode()])
    assert (guess.encoding, guess.mixed) == ("latin-1", True)
    guess = guess_encoding([b"word " * 100_000 + "café au lait".encode("latin-1")])
    assert guess.encoding == "latin-1"
    assert guess.example.endswith("café au lait")
