"""What a sweep reads of a trial from its folder."""

from __future__ import annotations

import json
import math

import pytest
import torch
from left_trials import leave_trial

from cotbert_core.files import write_json
from cotbert_core.settings import TrainSettings
from pipelines.recording import dev_metric
from pipelines.training.baseline import Baseline
from pipelines.tuning import state
from pipelines.tuning.options import TuneOptions
from pipelines.tuning.result import sweep_result, without_result
from pipelines.tuning.trial import one_line
from pipelines.tuning.trial_plan import Trial, TrialPlan
from tune_spaces import Space

TRIAL = Trial("0000", {"optimizer.learning_rate": 1e-3, "seed": 0}, TrainSettings(encoder="none"))
ROWS = (
    {"step": 0, "dev_spearman": 30.0, "check_seconds": 2.0},
    {"step": 1, "loss": 3.0, "step_seconds": 4.0, "dev_spearman": 35.0},
    {"step": 2, "loss": 2.0, "step_seconds": 4.0, "dev_spearman": 41.0, "check_seconds": 1.5},
)


@pytest.fixture
def folder(tmp_path):
    lines = "".join(json.dumps(row) + "\n" for row in ROWS)
    (tmp_path / "metrics.jsonl").write_text(lines)
    write_json(tmp_path / "settings.json", {})
    return tmp_path


def test_a_trial_is_unfinished_then_finished_and_perhaps_continued(folder):
    row = state.trial_row(TRIAL, folder, dev_metric.SPEARMAN)
    assert (row["status"], row["dev_spearman"]) == ("unfinished", 41.0)
    write_json(folder / "result.json", {})
    row = state.trial_row(TRIAL, folder, dev_metric.SPEARMAN)
    assert (row["status"], row["training_seconds"]) == ("finished", 11.5)
    assert (row["best_step"], row["steps"], row["dev_spearman_before"]) == (2, 2, 30.0)
    # The disk refused the checkpoint of step 2, so the model is another.
    write_json(folder / "result.json", {"best_step": 1})
    row = state.trial_row(TRIAL, folder, dev_metric.SPEARMAN)
    assert (row["best_step"], row["dev_spearman"]) == (1, 35.0)
    # A step that was done twice counts once.
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(ROWS[2] | {"step_seconds": 5.0}) + "\n")
    row = state.trial_row(TRIAL, folder, dev_metric.SPEARMAN)
    assert row["training_seconds"] == 12.5


def test_a_trial_that_was_scored_on_its_own_documents(folder):
    """MRR@10 and the graded pairs beside them choose nothing."""
    scores = ({"dev_found_first": 20.0}, {"dev_found_first": 31.0}, {"dev_found_first": 30.0})
    rows = [
        {"step": step, **found, "dev_mrr10": 90.0 + step, "dev_spearman.STS-B": 80.0 + step}
        for step, found in enumerate(scores)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_json(folder / "result.json", {})
    row = state.trial_row(TRIAL, folder, dev_metric.FOUND_FIRST)
    assert (row["dev_found_first"], row["dev_found_first_before"]) == (31.0, 20.0)
    assert row["best_step"] == 1
    assert not [name for name in row if "spearman" in name]
    assert state.trained_scores(folder) == {1: 31.0, 2: 30.0}


def test_a_trial_that_failed_before_its_first_check_has_the_sweeps_metric(tmp_path):
    write_json(tmp_path / "failed.json", {"error": "its process died"})
    row = state.trial_row(TRIAL, tmp_path, dev_metric.FOUND_FIRST)
    assert (row["dev_found_first"], row["status"]) == (None, "failed")
    assert not [name for name in row if "spearman" in name]


def test_a_score_that_is_not_a_number_is_the_lowest(folder):
    """Equal vectors have a Spearman correlation of NaN."""
    lines = [{"step": step, "dev_spearman": score} for step, score in ((1, math.nan), (2, 40.0))]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    row = state.trial_row(TRIAL, folder, dev_metric.SPEARMAN)
    assert (row["best_step"], row["dev_spearman"]) == (2, 40.0)


@pytest.mark.parametrize(
    ("trials", "best"),
    [
        ([("finished", 70.0), ("finished", 71.0)], 1),
        ([("finished", math.nan), ("finished", -1.0)], 1),
        ([("finished", 70.0), ("stopped", 71.0)], 1),
        ([("failed", None), ("stopped", 71.0), ("unfinished", 90.0)], 1),
        ([("failed", None), ("unfinished", 90.0)], None),
    ],
)
def test_the_best_trial_is_one_that_ended(trials, best):
    """Whether it finished or was stopped: its model is complete."""
    rows = [{"status": status, "dev_spearman": score} for status, score in trials]
    assert state.best_of(rows) is (None if best is None else rows[best])


@pytest.mark.parametrize(
    ("scores", "best"),
    [
        ([(70.0, 90.0), (84.0, 82.0)], (1, 0)),  # the luckiest run is of other settings
        ([(70.0, 90.0), (None, 99.0)], (0, 1)),  # a mean of fewer seeds
        ([(None, 90.0), (None, None)], (0, 1)),
        ([(math.nan, 90.0), (60.0, 61.0)], (1, 1)),
    ],
)
def test_the_best_settings_have_the_best_mean_over_their_seeds(scores, best):
    """None is the score of a run that failed."""
    rows = {}
    for number, pair in enumerate(scores):
        for seed, score in enumerate(pair):
            status = "failed" if score is None else "finished"
            own = {"settings": {"batch_size": number}, "seed": seed}
            rows[number, seed] = {**own, "status": status, "dev_spearman": score}
    assert state.best_of(state.best_settings([*rows.values()])) is rows[best]


def test_the_baseline_of_a_sweep_is_that_of_the_best_trials_encoder(tmp_path):
    trials = {}
    for number, (encoder, score) in enumerate((("small", 40.0), ("large", 41.0), ("small", 39.0))):
        name = f"{number:04}"
        trials[name] = Trial(name, {"encoder": encoder}, TrainSettings(encoder=encoder))
        leave_trial(tmp_path / "trials", name, {2: score})
    found = {
        "small": Baseline("mean pooling", "last", {"a": 60.0}),
        "large": Baseline("[CLS] vector", "cls", {"a": 50.0}),
    }
    options = TuneOptions(Space("mine", "Mine.", "quickstart", {}), "quickstart")
    plan = TrialPlan(trials, 3, [trial.settings for trial in trials.values()], {})
    result = sweep_result(options, plan, tmp_path, None, "mine.tsv", found)
    assert (result["best"]["name"], result["dev_spearman"]) == ("0001", 41.0)
    assert (result["baseline"], result["baseline_spearman"]) == ("[CLS] vector", 50.0)
    assert (result["dev"], result["method"]) == ("mine.tsv", TrainSettings().method.name)
    assert result["encoder"] == "large"
    for name in trials:
        (tmp_path / "trials" / name / "result.json").unlink()
    none = sweep_result(options, plan, tmp_path, None, "mine.tsv", found)
    assert (none["best"], none["baseline"], none["method"]) == (None, "mean pooling", None)


def test_an_error_is_its_last_line():
    assert one_line("Traceback\n  somewhere\nloss is nan") == "loss is nan"
    assert one_line(ValueError()) == "ValueError"
    low = "was 2.1GB used / 2.2GB limit, ...\nhow to address the out of memory issue: set RAY_"
    assert "because the machine ran out of memory (2.1GB used / 2.2GB limit): give" in one_line(low)
    low = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a ...")
    assert one_line(low).startswith("a GPU ran out of memory (it needed 2.00 GiB more): end other")
    assert one_line("CUDA error: out of memory").startswith("a GPU ran out of memory: end other")


def test_a_reason_that_trials_share_is_given_once():
    rows = [("0000", "nan at 2"), ("0001", "nan at 2"), ("0002", "nan at 3"), ("0003", "gone")]
    error = without_result([{"name": name, "error": error} for name, error in rows])
    assert str(error) == "no trial finished (0000: nan at 2; 0002: nan at 3)"
    assert "see --verbose" in str(without_result([{"name": "0000", "error": None}]))
