"""`python -m benchmarks.run` keeps the rows of other benchmarks when two sides disagree."""

from __future__ import annotations

import json

from benchmarks import run
from benchmarks.harness import DisagreementError, Row


def test_a_disagreement_is_reported_and_the_other_rows_are_kept(monkeypatch, tmp_path, capsys):
    def disagree(texts, rounds):
        raise DisagreementError("cosine 0.5")

    def measure(texts, rounds):
        return [Row("a step", "ours", "a peer", 1.0, 2.0, None, "same loss")]

    monkeypatch.setattr(run, "BENCHMARKS", {"first": disagree, "second": measure})
    (tmp_path / "text.txt").write_text("a sentence\n" * 10)
    record = tmp_path / "rows.json"
    status = run.main(["--text", str(tmp_path / "text.txt"), "--json", str(record)])
    said = capsys.readouterr()
    assert status == 1
    assert "error: first: cosine 0.5" in said.err
    assert "a peer" in said.out
    assert [row["benchmark"] for row in json.loads(record.read_text())["rows"]] == ["a step"]
