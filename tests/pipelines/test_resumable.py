"""Folders that a job goes on with: when, when not, and what is never thrown away."""

from __future__ import annotations

import pytest

from cotbert_core.errors import UserError
from pipelines.resumable import LOCK_FILE, resumable_folder

RECORD = {"method": "llm", "model": "a", "temperature": None}


def work(path, record=RECORD, text="", fail=False):
    """A job that writes a file of work, and fails if it is told to."""
    with resumable_folder(path, "augment", record, "ledger") as folder:
        ledger = folder / "ledger" / "a.jsonl"
        with ledger.open("a") as file:
            file.write(text)
        if fail:
            raise RuntimeError("stopped")
        (folder / "done").write_text(ledger.read_text())


def test_a_whole_job_leaves_its_folder_alone(tmp_path):
    work(tmp_path / "out", text="x")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["done"]


def test_work_stays_and_the_same_job_goes_on(tmp_path, capsys):
    with pytest.raises(RuntimeError):
        work(tmp_path / "out", text="1", fail=True)
    assert not (tmp_path / "out").exists()
    work(tmp_path / "out", text="2")
    assert (tmp_path / "out" / "done").read_text() == "12"
    assert "going on with what is in" in capsys.readouterr().err


def test_another_jobs_work_is_not_touched(tmp_path):
    with pytest.raises(RuntimeError):
        work(tmp_path / "out", text="1", fail=True)
    other = {**RECORD, "model": "b", "temperature": 0.5}
    with pytest.raises(UserError, match=r"\(model, temperature differ\): give the same settings"):
        work(tmp_path / "out", other)
    work(tmp_path / "out", text="2")
    assert (tmp_path / "out" / "done").read_text() == "12"


def test_without_work_there_is_nothing_to_keep(tmp_path):
    with pytest.raises(RuntimeError):
        work(tmp_path / "out", fail=True)
    assert list(tmp_path.iterdir()) == []


def test_a_job_killed_before_its_work_began_is_nobodys(tmp_path):
    """A kill leaves what an exception would have removed."""
    partial = tmp_path / "out.partial"
    partial.mkdir()
    (partial / LOCK_FILE).touch()
    (partial / "settings.json.partial").write_text("{")
    work(tmp_path / "out", text="1")
    partial.mkdir()
    (partial / "settings.json").write_text('{"model": "z"}')
    work(tmp_path / "two", text="1")
    assert (tmp_path / "two" / "done").read_text() == "1"


def test_a_strangers_folder_is_in_the_way(tmp_path):
    (tmp_path / "out.partial").mkdir()
    (tmp_path / "out.partial" / "mine").write_text("dear")
    with pytest.raises(UserError, match="is in the way and was not written by augment: move it"):
        work(tmp_path / "out")
    assert (tmp_path / "out.partial" / "mine").read_text() == "dear"


def test_two_processes_do_not_share_it(tmp_path):
    with (
        resumable_folder(tmp_path / "out", "augment", RECORD, "ledger"),
        pytest.raises(UserError, match=r"another process is writing .*out': wait for it or end it"),
    ):
        work(tmp_path / "out")
    assert (tmp_path / "out").is_dir()


def test_a_finished_output_is_refused(tmp_path):
    work(tmp_path / "out", text="1")
    with pytest.raises(UserError, match="already holds something"):
        work(tmp_path / "out")
    assert not (tmp_path / "out.partial").exists()
