"""The decision of a sweep that all workers of a run follow."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pipelines.training import worker
from pipelines.training.early_stopping import answer_run
from pipelines.training.training_state import seed_all


@pytest.mark.parametrize("continues", [True, False])
def test_all_workers_follow_the_decision_that_rank_0_read(tmp_path, monkeypatch, continues):
    """Also rank 1, which reads another one."""
    answer_run(tmp_path, 2, continues=not continues)
    monkeypatch.setattr(worker, "rank", lambda: 1)
    monkeypatch.setattr(worker, "gather_objects", lambda own: [continues, own])
    assert worker._should_continue(SimpleNamespace(early_stopping=tmp_path, step=2)) == continues


def test_every_worker_of_the_largest_seed_has_one():
    seed_all((2**63 - 1) * 8 + 7)
