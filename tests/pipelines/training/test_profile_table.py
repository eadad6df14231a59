"""What a profile says of steps that are known, and what it refuses."""

from __future__ import annotations

import csv

import pytest
import torch

from cotbert_core.errors import UserError
from cotbert_core.training.flops import Work
from cotbert_core.training.step_timer import SECTIONS, section
from pipelines.training import profiling
from pipelines.training.profile_table import notes, profile_table, read_table, waiting, write_table
from pipelines.training.profiling import COLUMNS, COUNTED, UNCOUNTED_STEPS, WARM, check_steps


def row(step, worker=0, kind=COUNTED, **milliseconds):
    """A step with 1 ms outside of all sections."""
    sections = {name: milliseconds.get(name, 0) / 1000 for name in SECTIONS}
    seconds = 0.001 + sum(sections.values())
    facts = {"step": step, "worker": worker, "kind": kind, "seconds": seconds, "rest": 0.001}
    return {**facts, **sections}


ALONE = [
    row(1, kind=WARM, forward=9000),
    row(5, forward=10, backward=29),
    row(6, forward=30, backward=29),
    row(7, forward=20, backward=29, checkpoint=50),
]


def test_medians_and_shares_are_over_the_counted_steps(tmp_path):
    header, lines = profile_table(ALONE)
    assert header == ("section", "median ms", "share", "steps")
    assert lines == [
        ("forward", "20.0", "30.0%", "3"),
        ("backward", "29.0", "43.5%", "3"),
        ("checkpoint", "50.0", "25.0%", "1"),
        ("rest", "1.0", "1.5%", "3"),
        ("whole step", "60.0", "100.0%", "3"),
    ]
    assert waiting(ALONE) is None
    (tmp_path / "profile").mkdir()
    write_table(tmp_path / "profile", ALONE)
    table, notes = read_table(tmp_path).split("\n\n")
    assert table.splitlines()[:3] == [
        "| section    | median ms |  share | steps |",
        "|------------|----------:|-------:|------:|",
        "| forward    |      20.0 |  30.0% |     3 |",
    ]
    assert notes.startswith("- Worker 0, 3 steps")


def test_of_several_workers_it_says_who_is_waited_for():
    rows = [row(n, 0, forward=50, gather=42) for n in (5, 6, 7)]
    rows += [row(n, 1, forward=90, gather=2) for n in (5, 6, 7)]
    header, lines = profile_table(rows)
    assert header[-2:] == ("least worker", "most worker")
    assert lines[0] == ("forward", "50.0", "53.8%", "3", "50.0", "90.0")
    assert lines[1] == ("gather", "42.0", "45.2%", "3", "2.0", "42.0")
    assert waiting(rows) == (
        "In gather, waiting for a slower worker takes 0.0 ms per step on worker 1, the slowest, "
        "and 40.0 ms on worker 0."
    )


def test_workers_that_wait_in_turn_both_wait():
    rows = [row(5, 0, gather=9), row(5, 1, gather=1), row(6, 0, gather=1), row(6, 1, gather=13)]
    assert "takes 4.0 ms per step on worker 0" in waiting(rows)
    assert "and 6.0 ms on worker 1." in waiting(rows)


def test_a_profile_without_counted_steps_says_so(tmp_path):
    assert profile_table(ALONE[:1])[1] == []
    assert notes(ALONE[:1])[0].startswith("No step was counted")
    write_table(tmp_path, ALONE[:1])


def test_steps_are_written_and_read_and_forward_is_split_by_tokens(tmp_path, monkeypatch):
    now, folder = [0.0], tmp_path / "profile"
    monkeypatch.setattr("cotbert_core.training.step_timer.time.perf_counter", lambda: now[0])
    work = Work(tokens=100, padding=50, bias_tokens=25)
    with profiling.profiled(folder, torch.device("cpu")) as lap:
        for step in range(1, UNCOUNTED_STEPS + 2):
            with section("forward"):
                now[0] += 8
            now[0] += 1
            lap(step, work)
    rows = profiling.read_steps(folder / profiling.STEPS_FILE)
    assert [r["kind"] for r in rows] == ["warm-up", *["traced"] * 3, "counted"]
    for r in rows:
        assert (r["forward"], r["bias rows"], r["rest"], r["seconds"]) == (6, 2, 1, 9)
    with (folder / profiling.STEPS_FILE).open() as file:
        assert tuple(next(csv.reader(file))) == COLUMNS
    assert {p.name for p in folder.iterdir()} == {"steps.csv", "trace-rank0.json.gz"}


def test_what_fails_leaves_no_steps(tmp_path):
    with pytest.raises(KeyError), profiling.profiled(tmp_path / "profile", torch.device("cpu")):
        raise KeyError
    assert not list((tmp_path / "profile").iterdir())


def test_a_run_without_a_step_to_count_is_refused():
    check_steps(UNCOUNTED_STEPS + 1)
    with pytest.raises(UserError, match="the run has 4 steps and --profile only counts steps aft"):
        check_steps(UNCOUNTED_STEPS)
