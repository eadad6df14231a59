"""Markup that goes, and what only looks like it."""

from __future__ import annotations

import pytest

from pipelines.cleaning.steps import STEPS

markup = STEPS["markup"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
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
        (
            "**bold**, *it*, _it_, __b__, ***all***, ~~gone~~, `code`",
            "bold, it, it, b, all, gone, code",
        ),
        ("**bold with *it* in it**", "bold with it in it"),
        ("## Heading", "Heading"),
        ("* an item", "an item"),
        ("[[Paris|the city]] in [[France]]", "the city in France"),
        ("[[File:a.jpg|thumb|A [[cat]] here]] A cat.[[Category:Cats]]", "A cat."),
        ("[https://a.org the text] here", "the text here"),
        (
            "'''Bold''', ''italic'' and '''''both''''' aren't plain",
            "Bold, italic and both aren't plain",
        ),
        ("'''don't'''", "don't"),
    ],
)
def test_markup_goes_and_its_text_stays(before, after):
    assert markup(before) == after


@pytest.mark.parametrize(
    "text",
    [
        "a < b and c > d",
        "I <3 you, and 3 << 4",
        "x <b and c> d",
        "List<String>, vector<int> and <your name>",
        "an <unk> word",
        "AT&T; R&D &notify; a && b",
        "2 * 3 * 4, a*b*c, 5* and 4* hotels, f(*args, **kwargs)",
        "snake_case_name and _private",
        "about ~5 and ~6",
        "#hashtag and C# or *",
        "a[i](x), [sic](see below), [1]",
        "[[1, 2], [3, 4]] and x[[0]]",
        "a 5'' screen and a 3'' pipe",
        "``LaTeX'' and ``more''",
        "it's 'so'",
    ],
)
def test_what_only_looks_like_markup_stays(text):
    assert markup(text) is text


PIECES = (
    "<script>", "<ref ", "<!--", "<a x=", '<a x="', "<", "<p a='", "&", "&a", "&#", "[", "[[", "![",
    "[a](", "[[a|", "[[File:", "[http://a ", "*a ", "**", "_a ", "`", "``a ", "~~a ", "''a ", "'",
    "# ",
)  # fmt: skip


@pytest.mark.timeout(60)
@pytest.mark.parametrize("piece", PIECES)
def test_time_grows_with_the_text_alone_on_broken_markup(piece):
    """Quadratic time would take minutes here."""
    alone, between = markup(piece * 50_000), markup("x" + piece * 20_000 + "y" * 50_000)
    assert len(alone) <= len(piece) * 50_000
    assert between.startswith("x")
    assert between.endswith("y")
