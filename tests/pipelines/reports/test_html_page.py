"""The shell of all pages: screens of any width, light and dark, values as a user types them."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pipelines
from pipelines.reports import html_page
from pipelines.reports.colours import SHADES, by_name
from pipelines.reports.values import as_typed, p_value, rounded

PACKAGE = Path(pipelines.__file__).parent


def test_a_page_fits_a_telephone_and_has_a_dark_style():
    page = html_page.page("T", "Note.", [("Head", "content")])
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in page
    light, dark = page.split("@media (prefers-color-scheme: dark)")
    for name, (light_shade, dark_shade) in SHADES.items():
        assert f"--{name}: {light_shade};" in light
        assert f"--{name}: {dark_shade};" in dark
    assert "<script" not in page
    assert "http" not in page


def test_one_module_writes_pages_and_one_names_them():
    named, written = set(), set()
    for path in PACKAGE.rglob("*.py"):
        source, name = path.read_text(encoding="utf-8"), path.relative_to(PACKAGE).as_posix()
        named |= {name} if re.search(r"""["'][\w-]+\.html["']""", source) else set()
        written |= {name} if "<html lang=" in source else set()
    assert named == {"runtime/ending.py"}
    assert written == {"reports/html_page.py"}


def test_no_line_ends_between_a_number_and_its_percent_sign():
    said = html_page.paragraphs(["51.0 % of all, or 6 %: a % sign."])
    assert said == "<p>51.0&nbsp;% of all, or 6&nbsp;%: a % sign.</p>\n"


def test_no_line_ends_inside_an_option():
    said = html_page.paragraphs(["Train with (--set a<b) or --dev-pairs, well--known."])
    options = [f'<span class="option">{one}</span>' for one in ("--set", "--dev-pairs")]
    assert said == f"<p>Train with ({options[0]} a&lt;b) or {options[1]}, well--known.</p>\n"
    assert ".option { white-space: nowrap; }" in html_page.page("T", "Note.", [])


def test_a_table_has_its_own_box_and_no_empty_column():
    shown = html_page.table(("a", "b", "c", "d"), [(1, "", None, "-"), (2, "-", False, "")])
    assert shown.startswith('<div class="box"><table')
    assert "<tr><th>a</th><th>c</th></tr>" in shown
    assert "<td>1</td><td>null</td>" in shown
    assert "<td>2</td><td>false</td>" in shown
    assert "<th>b</th>" in html_page.table(("a", "b"), [(1, ""), (2, 3)])
    assert "<th>b</th>" in html_page.table(("a", "b"), []), "a table without rows has its header"


def test_a_long_table_is_folded_after_the_rows_that_are_shown():
    rows = [(number, f"row {number}") for number in range(200)]
    folded = html_page.table(("n", "row"), rows, shown=30)
    first, rest = folded.split("<details><summary>170 more rows</summary>")
    assert (first.count("<tr>"), rest.count("<tr>")) == (31, 171), "each with the header"
    assert "row 29<" in first
    assert "row 30<" in rest
    assert "<details>" not in html_page.table(("n", "row"), rows[:30], shown=30)
    assert "<details>" not in html_page.table(("n", "row"), rows)


def test_values_are_spelled_as_on_the_command_line():
    typed = [
        (None, "null"),
        (False, "false"),
        (True, "true"),
        (1e-5, "1e-5"),
        (3.21e-05, "3.21e-5"),
        (0.123456789, "0.123456789"),
        (1.0, "1"),
        ([1, None, True], "1,null,true"),
        ({"a": None}, '{"a": null}'),
        ("none", "none"),
    ]
    assert [as_typed(value) for value, _ in typed] == [text for _, text in typed]
    numbers = {14200.5: "14,200", 9999.6: "10,000", 12.3456: "12.35", 2e-5: "2e-05"}
    numbers[math.nan] = "undefined"
    assert {value: rounded(value) for value in numbers} == numbers
    assert as_typed(0.123456789, 4) == "0.1235", "few digits only where they are asked for"
    assert as_typed(3.21987e-05, 4) == "3.22e-5"
    assert [p_value(p) for p in (0.0, 0.0004, 0.0006, 0.0316)] == ["<0.001"] * 2 + [
        "0.001",
        "0.032",
    ]


def test_the_colours_of_a_plot_follow_the_page():
    assert by_name("fill: #2563a8; stroke: #c2571a") == (
        "fill: var(--blue, #2563a8); stroke: var(--orange, #c2571a)"
    )
    assert by_name("fill: #123456") == "fill: #123456"
    assert by_name('href="#1f2933"') == 'href="#1f2933"', "a reference is not a colour"
    light = [light for light, _ in SHADES.values()]
    assert len(set(light)) == len(light), "a shade stands for one name"
