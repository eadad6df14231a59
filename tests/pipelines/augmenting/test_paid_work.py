"""Work that costs more than time: never thrown away unasked. The rest is in test_unfinished."""

from __future__ import annotations

import pytest

from cotbert_core.errors import UserError
from pipelines.storage.output_folder import RUN_FILE
from pipelines.storage.resumable_output import resumable_output

RECORD = {"job": "augment", "model": "a", "temperature": None}


def work(path, record=RECORD, text="", error=None):
    """A job that writes a file of work, and fails on request."""
    with resumable_output(path, record, paid=True) as place:
        (place.scratch / RUN_FILE).write_text("run")
        ledger = place.scratch / "a.jsonl"
        with ledger.open("a") as file:
            file.write(text)
        if error:
            raise error("stopped")
        (place.output / "done").write_text(ledger.read_text())


def stopped(path, text="", error=RuntimeError):
    with pytest.raises(error):
        work(path, text=text, error=error)


@pytest.mark.parametrize("error", [RuntimeError, UserError, KeyboardInterrupt])
def test_work_stays_and_only_the_same_job_continues(tmp_path, error):
    stopped(tmp_path / "out", "1", error)
    assert not (tmp_path / "out").exists()
    other = {**RECORD, "model": "b", "temperature": 0.5}
    with pytest.raises(UserError, match=r"\(model, temperature differ\): give the same settings"):
        work(tmp_path / "out", other)
    work(tmp_path / "out", text="2")
    assert (tmp_path / "out" / "done").read_text() == "12"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]


def test_without_work_there_is_nothing_to_keep(tmp_path):
    stopped(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_job_killed_before_its_work_began_is_nobodys(tmp_path):
    """A kill leaves what an exception would have removed."""
    partial = tmp_path / "out.partial"
    partial.mkdir()
    (partial / "record.json.partial").write_text("{")
    work(tmp_path / "out", text="1")
    (partial / "digest" / "scratch").mkdir(parents=True)
    (partial / "digest" / "scratch" / RUN_FILE).write_text("run")
    (partial / "record.json").write_text('{"job": "augment", "model": "z"}')
    partial.rename(tmp_path / "two.partial")
    work(tmp_path / "two", text="1")
    assert (tmp_path / "two" / "done").read_text() == "1"
