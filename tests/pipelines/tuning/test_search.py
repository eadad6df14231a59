"""Which trials are stopped, and how many run side by side."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
from left_trials import leave_trial

from cotbert_core.errors import UserError
from pipelines.recipes import RECIPES
from pipelines.runtime import training_capacity
from pipelines.runtime.placement import Node
from pipelines.runtime.training_capacity import worker_capacity
from pipelines.training.early_stopping import should_continue, was_stopped
from pipelines.tuning import run_trials
from pipelines.tuning.options import Stopping
from pipelines.tuning.run_trials import _scheduler, allocate_resources
from pipelines.tuning.trial_plan import Trial, TrialPlan

BASE = RECIPES["cot-bert-base"]()
STEPS = 9
# Dev scores at steps 1, 3 and 9: the first three are what a full grid would find best.
CURVES = {
    "0000": (40, 60, 80),
    "0001": (41, 62, 82),
    "0002": (42, 61, 81),
    "0003": (10, 11, 12),
    "0004": (43, 30, 99),
    "0005": (5, 90, 95),
}


def judge(folder):
    """What stops the trials in this folder, all of which have as many steps."""
    trials = {name: Trial(name, {"seed": 0}, BASE) for name in CURVES}
    plan = TrialPlan(trials, len(trials), [BASE], {})
    return _scheduler(Stopping(1), plan, folder, lambda settings: STEPS)


def report(scheduler, name, folder):
    """Steps that a trial is let to make."""
    trial = SimpleNamespace(trial_id=name, config={"trial": name})
    scheduler.on_trial_add(None, trial)
    for step, score in zip((1, 3, 9), CURVES[name], strict=True):
        result = {"step": step, "dev_score": score}
        assert scheduler.on_trial_result(None, trial, result) == "CONTINUE"
        if not should_continue(folder / name, step, wait=0):
            return step
    return STEPS


def test_bad_trials_are_stopped_and_the_best_is_what_the_grid_finds(tmp_path):
    scheduler = judge(tmp_path)
    made = {name: report(scheduler, name, tmp_path) for name in CURVES}
    assert made == {"0000": 9, "0001": 9, "0002": 3, "0003": 1, "0004": 3, "0005": 1}
    # What is lost with it: a trial that starts badly and ends well.
    best = max((n for n in CURVES if made[n] == STEPS), key=lambda n: CURVES[n][2])
    assert best == "0001"


def test_trials_of_an_earlier_run_are_measured_against(tmp_path):
    """The same decisions as without the break after three trials."""
    whole = judge(tmp_path / "whole")
    made = {name: report(whole, name, tmp_path / "whole") for name in CURVES}
    for name in ("0000", "0001", "0002", "0003"):
        curve = dict(zip((1, 3, 9), CURVES[name], strict=True))
        done = {step: score for step, score in curve.items() if step <= made[name]}
        status = "finished" if made[name] == STEPS else "stopped"
        leave_trial(tmp_path, name, {0: 1.0, **done}, status)
    again = judge(tmp_path)
    later = ("0004", "0005")
    assert [report(again, name, tmp_path) for name in later] == [made[name] for name in later]
    fresh = judge(tmp_path / "none")
    assert report(fresh, "0005", tmp_path / "none") == STEPS != made["0005"]


def test_a_trial_that_was_killed_on_the_way_is_measured_against(tmp_path):
    """Its checks before the kill are recorded where they were made, not its later ones for them."""
    leave_trial(tmp_path, "0001", {0: 1.0, 1: 41.0, 3: 62.0}, "unfinished")
    scheduler = judge(tmp_path)
    killed = SimpleNamespace(trial_id="0001", config={"trial": "0001"})
    scheduler.on_trial_add(None, killed)
    scheduler.on_trial_result(None, killed, {"step": 9, "dev_score": 82.0})
    assert report(scheduler, "0003", tmp_path) == 1
    assert report(scheduler, "0004", tmp_path) == 3


def test_a_trial_that_was_killed_before_it_was_stopped_stops_at_its_next_check(tmp_path):
    """As it would have without the kill, one check earlier; a better trial goes on."""
    scheduler = judge(tmp_path)
    report(scheduler, "0000", tmp_path)
    for name, first, continues in (("0003", 10.0, False), ("0004", 43.0, True)):
        leave_trial(tmp_path, name, {0: 1.0, 1: first}, "unfinished")
        trial = SimpleNamespace(trial_id=name, config={"trial": name})
        scheduler.on_trial_add(None, trial)
        scheduler.on_trial_result(None, trial, {"step": 2, "dev_score": 99.0})
        assert should_continue(tmp_path / name, 2, wait=0) is continues


@pytest.mark.parametrize("restarted", [False, True])
def test_a_stopped_trial_whose_process_died_before_it_stopped_stays_stopped(tmp_path, restarted):
    """It repeats its check from the checkpoint before."""
    scheduler = judge(tmp_path)
    report(scheduler, "0000", tmp_path)
    assert report(scheduler, "0003", tmp_path) == 1
    if restarted:  # the sweep, which begins with other trials than before
        scheduler = judge(tmp_path)
    assert report(scheduler, "0003", tmp_path) == 1
    assert was_stopped(tmp_path / "0003")


@pytest.fixture
def nodes(monkeypatch):
    """Let the session's live nodes be these."""

    def live(*nodes):
        for module in (run_trials, training_capacity):
            monkeypatch.setattr(module, "live_nodes", lambda: list(nodes))

    return live


@pytest.mark.parametrize(
    ("cluster", "workers", "cpus", "asked", "expected"),
    [
        ([Node(8)], 1, None, None, (1, None)),
        ([Node(8)], 1, None, 2, (2, 4)),
        ([Node(8)], 2, 2, None, (2, 2)),
        ([Node(8)], 2, 2, 1, (1, 2)),
        # A worker does not take cores of two nodes, nor a GPU's worker those of the others.
        ([Node(8)] * 4, 1, None, 2, (2, 8)),
        ([Node(8), Node(2)], 1, None, 2, (2, 4)),
        ([Node(3), Node(3)], 1, 2, None, (2, 2)),
        ([Node(32, 4)], 1, None, None, (4, 8)),
        ([Node(8, 4)], 2, None, None, (2, 2)),
        ([Node(8, 4)], 4, None, None, (1, None)),
        ([Node(2, 1)], 2, None, None, (1, None)),
        ([Node(1)], 2, 1, None, (1, 1)),
    ],
)
def test_trials_side_by_side_have_room(nodes, cluster, workers, cpus, asked, expected):
    nodes(*cluster)
    on_gpus = sum(node.gpus for node in cluster) >= workers
    at_once, cores = allocate_resources(workers, cpus, asked, on_gpus)
    assert (at_once, cores) == expected
    assert (
        cores is None
        or at_once == 1
        or (worker_capacity(cluster, cores, int(on_gpus)) >= at_once * workers)
    )
    if on_gpus:  # gpus_per_worker=0
        assert allocate_resources(workers, cpus, asked) == (1, None)


@pytest.mark.parametrize(("cpus", "asked", "room"), [(None, 3, 2), (2, 2, 1), (1, 0, 2)])
def test_more_than_there_is_room_for_is_refused(nodes, cpus, asked, room):
    nodes(Node(2))
    message = rf"max_concurrent is {asked} and there is capacity for {room} t"
    with pytest.raises(UserError, match=message):
        allocate_resources(1, cpus, asked)


def test_a_trial_without_a_score_is_stopped(tmp_path):
    scheduler = judge(tmp_path)
    trial = SimpleNamespace(trial_id="0000", config={"trial": "0000"})
    scheduler.on_trial_add(None, trial)
    for step, continues in ((0, True), (1, False)):
        scheduler.on_trial_result(None, trial, {"step": step, "dev_score": math.nan})
        assert should_continue(tmp_path / "0000", step, wait=0) is continues


def test_faults_of_stopping_are_reported():
    with pytest.raises(UserError, match="asha is 0: give at least 1 step"):
        Stopping(0)
    with pytest.raises(UserError, match="reduction is 1: give at least 2"):
        Stopping(1, 1)
