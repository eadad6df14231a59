"""What the benchmarks compare: the names of both sides, and the text that is prepared."""

from __future__ import annotations

from benchmarks import harness, preparing


def test_a_row_names_its_peer(monkeypatch):
    monkeypatch.setattr(harness, "number_formats", lambda: ["fp32"])
    ways = (lambda precision: lambda number: None,) * 2
    formats = (("fp32", "fp32", None), ("bf16", "fp32", 2.0))
    rows = harness.compare_formats("step", formats, *ways, 1, "same loss", "another library")
    assert [(row.ours, row.peer) for row in rows] == [("cotbert fp32", "another library fp32")]


def test_one_line_in_twenty_repeats_an_earlier_one(tmp_path):
    texts = [f"head{number} tail{number}" for number in range(100_000)]
    preparing.recombine(texts, 50_000, tmp_path / "text.txt")
    lines = (tmp_path / "text.txt").read_text().splitlines()
    assert round(1 - len(set(lines)) / len(lines), 3) == preparing.REPEATED
