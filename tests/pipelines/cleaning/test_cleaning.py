"""Each step: what it changes, what it leaves alone, and that no broken text takes it long."""

from __future__ import annotations

import unicodedata

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
    "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f won",  # England's flag
    "5 * 3 * 2 < 31 and 2 > 1, R&D, AT&T;",
    "Node.js, file.txt, 7 @ 3, @someone",
)


def test_the_order_is_fixed():
    assert list(STEPS) == ["wikitext", "markup", "urls", "control", "unicode"]


LOOKS_LIKE_MARKUP = (
    "a < b and c > d",
    "I <3 you, and 3 << 4",
    "x <b and c> d",
    "List<String>, vector<int> and <your name>",
    "List<Object>, Optional<Address>, Set<Label> and </Section>",
    "an <unk> word",
    "AT&T; R&D &notify; a && b",
    "2 * 3 * 4, a*b*c, 5* and 4* hotels, f(*args, **kwargs)",
    "snake_case_name, _private and __init__",
    "about ~5 and ~6",
    "#hashtag and C# or *",
    "a[i](x), a[i](j.k), [sic](see below), [1]",
    "[[1, 2], [3, 4]] and x[[0]]",
    """df[["a","b"]].mean(), [['a'], ["b"]], [["a"]] and lst[[name]]""",
    "if [[ -f file ]]; then",
    "a 5'' screen and a 3'' pipe",
    "``LaTeX'' and ``more''",
    "it's 'so'",
)


UNCHANGED = {
    "wikitext": ("a smile :)", "from .NET to .org"),
    "markup": LOOKS_LIKE_MARKUP,
    "urls": (
        "A prefix such as https:// is not an address, and neither is me@home",
        "Use react@18.2.0, actions/checkout@v4.1.0 and ssh root@10.0.0.1, 10@2.5 odds",
        "The product A@B.T is a matrix",
    ),
    "control": ("a\ue000b",),  # private use: neither printable nor removed
    "unicode": ("Å",),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_clean_text_comes_back_as_the_same_object(step):
    for text in (*CLEAN, *UNCHANGED[step]):
        assert STEPS[step](text) is text


CHANGED = {
    "markup": [
        ("<p>A <b>bold</b> word</p>", "A bold word"),
        ("one<br>two<br/>three<BR />four", "one two three four"),
        ("H<sub>2</sub>O", "H2O"),
        ('<a href="/x" title="a > b">a link</a>.', "a link."),
        ("<td nowrap align=left>cell</td>", "cell"),
        ("<script type='x'>if (a < b) { }</script>Text<STYLE>p { }</Style>.", "Text."),
        ("the <script> that nobody closes", "the that nobody closes"),
        ("<!-- note --> kept <!-- open", "kept <!-- open"),
        ("<!DOCTYPE html><html><body>Hi</body></html>", "Hi"),
        ('Needed.<ref name="UN 12/2019">Ann "x", <i>Y</i>.</ref> More.', "Needed. More."),
        ("Needed.<ref name=un /> More<ref>x</ref>.", "Needed. More."),
        ("<onlyinclude></onlyinclude>", ""),
        ("R&amp;B, &quot;x&quot;&nbsp;y, &#8217;s &#x2019;s", 'R&B, "x" y, ’s ’s'),
        ("&lt;b&gt; is a tag", "<b> is a tag"),
        ("read [the guide](https://a.org/b_(c)) now", "read the guide now"),
        ('[a](./b.md "title") and ![pixels](p.png) c', "a and c"),
        ("**bold**, *it*, _it_, __b__, ***all***, ~~gone~~, `x`", "bold, it, it, b, all, gone, x"),
        ("**bold with *it* in it**", "bold with it in it"),
        ("## Heading", "Heading"),
        ("* an item", "an item"),
        ("[[Paris|the city]] in [[France]]", "the city in France"),
        ("在[[巴黎]]的[指南](https://a.org/b)里", "在巴黎的指南里"),
        ("[[File:a.jpg|thumb|A [[cat]] here]] A cat.[[Category:Cats]]", "A cat."),
        ("[https://a.org the text] here", "the text here"),
        ("'''Bold''', ''italic'' and '''''both''''' aren't it", "Bold, italic and both aren't it"),
        ("'''don't'''", "don't"),
    ],
    "wikitext": [
        ("A red @-@ tipped claw .", "A red-tipped claw."),
        ("It is 0 @.@ 7 – 2 @.@ 2 kg ( 1 @.@ 5 lb ) in 20 @,@ 000 cases .",
         "It is 0.7 – 2.2 kg (1.5 lb) in 20,000 cases."),
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
    "urls": [
        ("See https://a.org/b?c=d&e=f#g for more.", "See for more."),
        ("Visit www.example.com.", "Visit."),
        ("Visit WWW.EXAMPLE.COM!", "Visit!"),
        ("Ask (see ftp://x.org/y_(z)), then go.", "Ask (see), then go."),
        ("Ask (https://x.org), then go.", "Ask, then go."),
        ("At <https://x.org> now", "At now"),
        ("Write to jo.doe+x@mail-a.example.org, or mailto:a@b.de.", "Write to, or."),
        ("Schreib an müller@example.de, nicht an a@b.co.uk.", "Schreib an, nicht an."),
        ("他说看https://a.org/b。好的", "他说看。好的"),
        ("写信到jo@example.org吧", "写信到吧"),
        ("Siehe https://de.example.org/wiki/Köln heute", "Siehe heute"),
        ("https://only.example.org/", ""),
        ("a.b@c.example", ""),
    ],
    "control": [
        ("\ufeffA text", "A text"),
        ("\x1b[1;31mError:\x1b[0m it \x1b[Kfailed [31m", "Error: it failed [31m"),
        ("so\u00adft hy\u00adphens", "soft hyphens"),
        ("ze\u200bro wi\u2060dth", "zero width"),
        ("a\x00b\x07c\x92d\x7fe", "abcde"),
        ("left\u200e and \u202bright\u202c", "left and right"),
        ("Latin fi\u200cle\u200d", "Latin file"),
        ("line\u2028break", "line break"),
        ("\U0001f3f4\U000e0067 a\U000e0062\U000e007f", "\U0001f3f4 a"),
        ("\u200b\ufeff", ""),
    ],
    "unicode": [
        ("cafe\u0301", "café"),
        ("A\u030angstro\u0308m", "Ångström"),
        ("\u1112\u1161\u11ab", "한"),
        ("10⁶ ½ ﬁne Ｗｉｄｅ", "10⁶ ½ ﬁne Ｗｉｄｅ"),  # NFKC would say 106, 1⁄2
    ],
}  # fmt: skip


@pytest.mark.parametrize("step", CHANGED)
def test_what_a_step_changes(step):
    for before, after in CHANGED[step]:
        assert STEPS[step](before) == after


# Format characters that are seen (Arabic number signs), shape what is seen, or are too new.
SEEN = {*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}
SEEN |= {*range(0x13430, 0x13440), *range(0x1BCA0, 0x1BCA4), *range(0x1D173, 0x1D17B)}


def test_control_removes_what_unicode_calls_control_or_format():
    """Against a walk over all characters, each between two Latin letters."""
    for code in [*range(0xD800), *range(0xE000, 0x110000)]:
        character = chr(code)
        if unicodedata.category(character) in ("Cc", "Cf") and code not in SEEN:
            between = " " if character.isspace() else ""
            between = "\n" if character == "\n" else between
            assert STEPS["control"](f"a{character}b") == f"a{between}b", hex(code)


BROKEN = (
    "https://", "a@", "a.", "@", "(", "www.", "= ", "' ", '" ', " @-@", "a\u0301\u200d", "_b@c.",
    "\U0001f3f4\U000e0067", "a@b.c1.", "é", "é@ab.cd.1",
)  # fmt: skip
BROKEN_MARKUP = (
    "<script>", "<ref ", "<!--", "<a x=", '<a x="', "<", "<p a='", "&", "&a", "&#", "[", "[[", "![",
    "[a](", "[[a|", "[[File:", "[http://a ", "*a ", "**", "_a ", "`", "``a ", "~~a ", "''a ", "'",
    "# ",
)  # fmt: skip


@pytest.mark.timeout(60)
@pytest.mark.parametrize("step", STEPS)
def test_time_grows_with_the_text_alone(step):
    """Quadratic time would take minutes here."""
    for piece in (*BROKEN, *(BROKEN_MARKUP if step == "markup" else ())):
        assert len(STEPS[step](piece * 50_000)) <= len(piece) * 50_000, piece
        between = STEPS[step]("x" * 20_000 + piece * 20_000 + "y" * 50_000)
        assert between.startswith("x"), piece
        assert between.endswith("y") or step == "urls", (piece, "an address takes the rest")


def test_fold():
    assert fold(" a \u00a0 b\t\tc ") == "a b c"
    assert fold(" a \u00a0 b\n\n\t\n\tc ") == "a b\nc"
