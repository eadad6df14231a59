"""Where the rows went, as a table and as a page with the lengths of the sentences."""

from __future__ import annotations

import re

import pytest

from pipelines.commands.prepare import rows_table
from pipelines.preparing.report import length_histogram, row_counts, write_corpus_report

pytestmark = pytest.mark.drawn

RESULT = {"rows_read": 1000, "rows": 900, "dropped_empty": 5, "dropped_duplicate": 45,
          "dropped_excluded": 5, "sampled_out": 45, "truncated": 7, "seconds": 1.0}  # fmt: skip


def test_every_row_that_was_read_is_in_the_table():
    lines = row_counts(RESULT)
    assert lines == [
        ("read", "1,000", "100.0 %"), ("kept", "900", "90.0 %"), ("duplicate", "45", "4.5 %"),
        ("empty", "5", "0.5 %"), ("excluded", "5", "0.5 %"), ("sampled out", "45", "4.5 %"),
    ]  # fmt: skip
    assert sum(int(n) for _, n, _ in lines[1:]) == 1000
    shown = [line.split() for line in rows_table(RESULT).splitlines()]
    assert shown[0] == ["rows", "number", "share"]
    assert shown[2] == ["read", "1,000", "100.0", "%"]
    # Nothing that did not happen is shown.
    lines = row_counts({"rows_read": 3, "rows": 3, "sampled_out": 0})
    assert [what for what, _, _ in lines] == ["read", "kept"]


def test_the_bars_are_as_high_as_the_counts_that_they_show_on_hover():
    picture = length_histogram([0, 10, 1040, 20, 30])
    heights = {"blue": [], "orange": []}
    for path, colour in re.findall(r'<path d="(M [^"]*z\s*)"[^>]*fill: var\(--(\w+)', picture):
        ys = [float(y) for y in re.findall(r"[ML] [\d.]+ ([\d.]+)", path)]
        heights.setdefault(colour, []).append(max(ys) - min(ys))
    bars = [*heights["blue"][:4], heights["orange"][0]]
    assert [round(1040 * height / bars[2]) for height in bars] == [0, 10, 1040, 20, 30]
    assert "<title>whole, 2: 1,040</title>" in picture
    assert "<title>cut, more than 3: 30</title>" in picture


def test_the_page_holds_the_table_and_the_plot(tmp_path):
    manifest = {
        "rows_read": 10, "rows": 7, "dropped": {"empty": 3}, "sampled_out": 0, "tokens": 20,
        "encoder": "some/encoder", "tokenizer_hash": "abc", "max_length": 4,
        "source": {"inputs": ["a<b>.txt"], "files": 1, "sample": None,
                   "cleaning": {"lower": False}},
    }  # fmt: skip
    write_corpus_report(tmp_path / "report.html", manifest, [0, 1, 2, 3, 0, 1], {})
    text = (tmp_path / "report.html").read_text()
    for words in (
        "7 sentences, 20 tokens.", "<td>empty</td><td>3</td><td>30.0 %</td>", "a&lt;b&gt;.txt",
        "more than 4, cut to 4", "<td>lower</td><td>false</td>",
    ):  # fmt: skip
        assert words in text
    assert "sample" not in text.split("Made from")[1]
