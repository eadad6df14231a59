"""A number of workers that is not what runs, or that shares cores, is said with the reason."""

from __future__ import annotations

import pytest

from pipelines.runtime import shard_tasks
from pipelines.runtime.shard_tasks import report_workers


@pytest.fixture(autouse=True)
def four_cores(monkeypatch):
    monkeypatch.setattr(shard_tasks, "available_cores", lambda: 4)
    monkeypatch.setattr(shard_tasks, "ray_runs", lambda: False)


@pytest.mark.parametrize(
    ("asked", "running", "pieces", "said"),
    [
        (50, 1, 1, "note: --workers is 50 and 1 will run: 1 shards of the input are left, "
                   "with one worker each, and there are 4 cores"),
        (50, 50, 80, "note: --workers is 50 and there are 4 cores, which they will share"),
        (4, 4, 80, ""),
        (2, 2, 2, ""),
        (None, 1, 1, ""),
        (9, 1, 0, ""),
    ],
)  # fmt: skip
def test_what_is_said(capsys, asked, running, pieces, said):
    report_workers(asked, running, pieces, "shards")
    assert capsys.readouterr().err.strip() == said
