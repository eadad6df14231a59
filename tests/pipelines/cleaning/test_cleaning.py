"""Each step: what it changes, what it leaves alone, and that no text takes it long."""

from __future__ import annotations

import unicodedata
from itertools import product

import pytest

from pipelines.cleaning.steps import STEPS, fold

CLEAN = (
    "The ferry left at 9.15 with forty people, two dogs and a piano.",
    'She said "no" (twice), and nobody\'s plan survived.',
    "Größe, café, naïve: x² + ½ is 10⁶.",
    "渡轮九点一刻开了，载着四十个人。",
    "می\u200cخواهم بروم",
    "क्\u200dष",
    "👩\u200d👩\u200d👦 on the beach",
    "5 * 3 * 2 < 31 and 2 > 1, R&D, AT&T;",
    "Node.js, file.txt, 7 @ 3, @someone",
)


def check_step(step: str, before: str, after: str) -> None:
    assert STEPS[step](before) == after


def test_the_order_is_fixed():
    assert list(STEPS) == ["wikitext", "markup", "urls", "control", "unicode"]


@pytest.mark.parametrize(
    ("step", "text"),
    [
        *product(STEPS, CLEAN),
        ("wikitext", "a smile :)"),
        ("wikitext", "from .NET to .org"),
        ("markup", "a < b & c * d"),
        ("urls", "https:// is a prefix, me@home is no address"),
        ("control", "a\ue000b"),  # private use: neither printable nor removed
        ("unicode", "Å"),
    ],
)
def test_a_clean_text_comes_back_as_the_same_object(step, text):
    assert STEPS[step](text) is text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("A red @-@ tipped claw .", "A red-tipped claw."),
        (
            "It is 0 @.@ 7 – 2 @.@ 2 kg ( 1 @.@ 5 lb ) in 20 @,@ 000 cases .",
            "It is 0.7 – 2.2 kg (1.5 lb) in 20,000 cases.",
        ),
        ('It is " blue " , he said ; then " no . "', 'It is "blue", he said; then "no."'),
        ('A 6 " pipe , and no more', 'A 6 " pipe, and no more'),  # an odd quotation mark stays
        ("He didn 't say it 's theirs .", "He didn't say it's theirs."),
        ("The lobsters ' claws : [ sic ] !", "The lobsters' claws: [sic]!"),
        ("It cost $ 5 , or £ 4 , 10 % less ...", "It cost $5, or £4, 10% less..."),
        ("It takes 4 @.@ <unk> or 3 @.@ 5 days .", "It takes 4 <unk> or 3.5 days."),
        ("A <unk> of H. <unk> .", "A <unk> of H. <unk>."),
        ("= Homarus gammarus =", ""),
        ("= = = Post @-@ war career = = =", ""),
        ("x = y , z = 3 .", "x = y, z = 3."),
    ],
)
def test_wikitext(before, after):
    check_step("wikitext", before, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("See https://a.org/b?c=d&e=f#g for more.", "See for more."),
        ("Visit www.example.com.", "Visit."),
        ("Visit WWW.EXAMPLE.COM!", "Visit!"),
        ("Ask (see ftp://x.org/y_(z)), then go.", "Ask (see), then go."),
        ("Ask (https://x.org), then go.", "Ask, then go."),
        ("At <https://x.org> now", "At now"),
        ("Write to jo.doe+x@mail-a.example.org, or mailto:a@b.de.", "Write to, or."),
        ("他说看https://a.org/b。好的", "他说看。好的"),
        ("Siehe https://de.example.org/wiki/Köln heute", "Siehe heute"),
        ("https://only.example.org/", ""),
        ("a.b@c.example", ""),
    ],
)
def test_urls(before, after):
    check_step("urls", before, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("\ufeffA text", "A text"),
        ("so\u00adft hy\u00adphens", "soft hyphens"),
        ("ze\u200bro wi\u2060dth", "zero width"),
        ("a\x00b\x07c\x92d\x7fe", "abcde"),
        ("left\u200e and \u202bright\u202c", "left and right"),
        ("Latin fi\u200cle\u200d", "Latin file"),
        ("line\u2028break", "line break"),
        ("\u200b\ufeff", ""),
    ],
)
def test_control(before, after):
    check_step("control", before, after)


# Format characters that are seen (Arabic number signs), shape what is seen, or are too new.
SEEN = {*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}
SEEN |= {*range(0x13430, 0x13440), *range(0x1BCA0, 0x1BCA4), *range(0x1D173, 0x1D17B)}


def test_control_removes_what_unicode_calls_control_or_format():
    """Against a walk over all characters, each between two Latin letters."""
    for code in [*range(0xD800), *range(0xE000, 0x110000)]:
        character = chr(code)
        if unicodedata.category(character) in ("Cc", "Cf") and code not in SEEN:
            between = " " if character.isspace() else ""
            assert STEPS["control"](f"a{character}b") == f"a{between}b", hex(code)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("cafe\u0301", "café"),
        ("A\u030angstro\u0308m", "Ångström"),
        ("\u1112\u1161\u11ab", "한"),
        ("10⁶ ½ ﬁne Ｗｉｄｅ", "10⁶ ½ ﬁne Ｗｉｄｅ"),  # NFKC would say 106, 1⁄2
    ],
)
def test_unicode(before, after):
    check_step("unicode", before, after)


BROKEN = (
    "https://",
    "a@",
    "a.",
    "@",
    "(",
    "www.",
    "= ",
    "' ",
    '" ',
    " @-@",
    "a\u0301\u200d",
    "_b@c.",
)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("piece", BROKEN)
def test_time_grows_with_the_text_alone(step, piece):
    """Quadratic time would take minutes here."""
    text = "x" * 50_000 + piece * 50_000
    assert STEPS[step](text).startswith("x")


def test_fold():
    assert fold(" a \u00a0 b\n\tc ") == "a b c"
