"""What a sweep shows of its trials while it runs, and the time that it expects to take."""

from __future__ import annotations

import logging
import math
import re
from types import SimpleNamespace

import pytest
import torch
from left_trials import leave_trial

from cotbert_core.training import devices
from pipelines.recipes import RECIPES
from pipelines.runtime.ray_log import LOG_FILE
from pipelines.tuning import progress, trial
from pipelines.tuning.trial_plan import Trial, TrialPlan

BASE = RECIPES["cot-bert-base"]()
STEPS, EVERY = 90, 15


class Sweep:
    """A sweep whose steps take a second each. clock: the seconds so far."""

    def __init__(self, folder, patch, trials, share=1.0):
        names = [f"{number:04}" for number in range(trials)]
        plan = TrialPlan({name: Trial(name, {}, BASE) for name in names}, trials, [BASE], {})
        self.clock, self.folder = 0, folder
        patch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: self.clock))
        self.callback = progress.ProgressCallback(plan, folder, lambda settings: STEPS, share)

    def train(self, name, until, begin=0, score=50.0):
        """Run a trial from `begin` to `until` and yield after every dev check."""
        trial = SimpleNamespace(config={"trial": name})
        for step in range(begin + EVERY, until + 1, EVERY):
            self.clock += EVERY
            result = {"step": step, "dev_score": score}
            self.callback.on_trial_result(0, [], trial, result)
            yield
        leave_trial(self.folder, name, {0: 1.0, until: score}, "finished")
        self.callback.on_trial_complete(0, [], trial)

    def left(self):
        """The seconds that it says are left."""
        found = re.search(r"(\d+):(\d\d) left", self.callback._head())
        return 60 * int(found[1]) + int(found[2]) if found else 0


def test_the_time_left_counts_what_is_stopped_as_little(tmp_path, monkeypatch):
    """Nine trials of which all but two are stopped at the first check."""
    lengths = [STEPS, STEPS, *[EVERY] * 7]
    sweep = Sweep(tmp_path, monkeypatch, len(lengths), share=1 / 3)
    shown = []
    for number, length in enumerate(lengths):
        for _ in sweep.train(f"{number:04}", length):
            shown.append((sum(lengths) - sweep.clock, sweep.left()))
    early = [left / true for true, left in shown if true > 60]
    assert len(early) >= 12
    assert 0.8 < min(early) <= max(early) < 2.5
    assert sweep.left() == 0


def test_without_stopping_every_trial_counts_whole(tmp_path, monkeypatch):
    sweep = Sweep(tmp_path, monkeypatch, 3)
    for number in range(3):
        for _ in sweep.train(f"{number:04}", STEPS):
            assert sweep.left() == 3 * STEPS - sweep.clock


@pytest.mark.parametrize("begin", [60, 0])
def test_a_continued_or_repeated_trial_counts_from_where_it_began(tmp_path, monkeypatch, begin):
    leave_trial(tmp_path, "0000", {0: 1.0, 60: 50.0}, "unfinished")
    sweep = Sweep(tmp_path, monkeypatch, 2)
    for _ in sweep.train("0000", STEPS, begin):
        assert sweep.left() == 2 * STEPS - begin - sweep.clock


def test_the_best_score_is_a_number_after_training(tmp_path, monkeypatch, capsys):
    """Neither that of the untouched encoder nor NaN, and a file without checks has none."""
    leave_trial(tmp_path, "0000", {0: 99.0, 15: math.nan, 30: 41.0})
    leave_trial(tmp_path, "0001", {})
    sweep = Sweep(tmp_path, monkeypatch, 3)
    for _ in sweep.train("0002", STEPS, score=40.0):
        pass
    lines = capsys.readouterr().err.splitlines()[-2:]
    assert [line.split()[:2] for line in lines] == [["0000", "41.00"], ["0002", "40.00"]]


@pytest.mark.parametrize("verbose", [False, True])
def test_where_a_trial_failed_is_logged_or_shown(tmp_path, monkeypatch, verbose):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)

    def fail(*_):
        raise ValueError("the loss is nan")

    monkeypatch.setattr(trial, "_train", fail)
    monkeypatch.setattr(trial.ray.tune, "report", lambda _: None)
    monkeypatch.setattr(trial, "set_output", lambda **_: None)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")  # put back after the test
    monkeypatch.setattr(devices, "_chosen", None)
    shown = []
    logger, handler = logging.getLogger("ray.tune"), logging.Handler()
    monkeypatch.setattr(handler, "handle", shown.append)
    monkeypatch.setattr(logger, "handlers", [handler])
    sweep = trial.Sweep(tmp_path / "trials", tmp_path, "sqlite://", verbose=verbose)
    (tmp_path / "trials" / "0000").mkdir(parents=True)
    (tmp_path / "trials" / "0000" / "settings.json").write_text("{}")
    trial.run_trial({"trial": "0000"}, sweep, None)
    log = tmp_path / LOG_FILE
    assert [record.getMessage() for record in shown] == ["trial 0000 failed"] * verbose
    assert all(record.exc_info for record in shown), "with its traceback"
    assert devices.current_device().type == "cpu", "the GPUs are for its worker"
    assert log.exists() is not verbose
    assert verbose or "in fail" in log.read_text()
