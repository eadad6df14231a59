"""The steps that a profile traces, and what it refuses."""

from __future__ import annotations

import pytest
import torch
from torch.profiler import record_function

from cotbert_core.errors import UserError
from pipelines.training import profiling
from pipelines.training.profiling import check_steps, profiler, read_sections

# Steps done before, all steps, steps between dev checks, and the steps that are traced.
TRACED = [(0, 6, 2, {3, 4}), (0, 9, 5, {4, 5}), (0, 4, 125, {3, 4}), (3, 9, 2, {7, 8})]


def run(home, done, total, eval_every):
    with profiler(home / "profile", torch.device("cpu"), done, total, eval_every) as traced:
        for step in range(done + 1, total + 1):
            with record_function("forward"), record_function(f"step {step}"):
                torch.ones(2).sum()
            if traced is not None:
                traced.step()


@pytest.mark.parametrize(("done", "total", "eval_every", "steps"), TRACED)
def test_the_first_check_after_the_warm_up_is_traced(tmp_path, done, total, eval_every, steps):
    run(tmp_path, done, total, eval_every)
    table = (tmp_path / "profile" / "table.md").read_text()
    assert {n for n in range(1, 10) if f" step {n} " in table} == steps
    names = [row.split("  ")[0] for row in map(str.strip, read_sections(tmp_path).splitlines())]
    assert names == ["Name", "ProfilerStep*", "forward"]
    assert {p.name for p in (tmp_path / "profile").iterdir()} == {"table.md", "trace-rank0.json.gz"}


def test_other_workers_and_the_last_steps_after_a_loss_have_no_profile(tmp_path, monkeypatch):
    run(tmp_path, 3, 6, 2)
    monkeypatch.setattr(profiling, "rank", lambda: 1)
    run(tmp_path, 0, 6, 2)
    assert not list(tmp_path.iterdir())
    assert read_sections(tmp_path).startswith("no step was profiled")


def test_a_run_with_too_few_steps_is_refused():
    check_steps(4)
    with pytest.raises(UserError, match="the run has 3 steps and --profile traces two after"):
        check_steps(3)
