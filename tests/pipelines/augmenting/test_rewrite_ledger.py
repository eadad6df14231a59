"""The ledger: whatever moment a writer is stopped at, whole lines stay and nothing else."""

from __future__ import annotations

import pytest

from cotbert_core.errors import UserError
from pipelines.augmenting.ledger import Rewrite, open_ledger, read_ledger

ROWS = [
    Rewrite(5, "a \u00e9 line\nbreak", tokens_in=7, tokens_out=2),
    Rewrite(-3, None, "failed", tokens_in=9),
    Rewrite(2**62, "", cut=True),
]


def write(path, rewrites):
    with open_ledger(path) as ledger:
        ledger.add(rewrites)


def test_a_second_rewrite_of_a_row_is_not_kept(tmp_path):
    path = tmp_path / "a.jsonl"
    write(path, ROWS)
    before = path.read_bytes()
    with open_ledger(path) as ledger:
        ledger.add([Rewrite(5, "another"), Rewrite(6, "new")])
        assert (ledger.rows[5], ledger.rows[6].text) == (ROWS[0], "new")
    assert path.read_bytes() == before + b'{"id": 6, "text": "new"}\n'


def test_cut_anywhere_it_continues_with_whole_lines(tmp_path):
    whole = tmp_path / "whole.jsonl"
    write(whole, ROWS)
    content = whole.read_bytes()
    for size in range(len(content) + 1):
        path = tmp_path / f"{size}.jsonl"
        path.write_bytes(content[:size])
        kept = content[:size].count(b"\n")
        assert list(read_ledger(path).values()) == ROWS[:kept]
        write(path, ROWS)
        assert path.read_bytes() == content


def test_lines_that_are_no_rows_are_passed_over(tmp_path):
    path = tmp_path / "a.jsonl"
    assert read_ledger(path) == {}
    write(path, ROWS[:1])
    junk = b'\0\0\0\n{"id": 5}\n7\n{"id": 1, "x": 2}\n'
    path.write_bytes(junk + path.read_bytes())
    assert read_ledger(path) == {5: ROWS[0]}


def test_two_cannot_write_at_a_time(tmp_path):
    path = tmp_path / "a.jsonl"
    with (
        open_ledger(path) as ledger,
        pytest.raises(UserError, match="is being written by another process: wait"),
        open_ledger(path, wait=0.0),
    ):
        pass
    ledger.rows.clear()
    write(path, ROWS)
    assert len(read_ledger(path)) == 3
