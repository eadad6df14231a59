"""Which trials a sweep has: the same ones whenever it is asked, each once."""

from __future__ import annotations

import json

import numpy as np
import pytest
from ray import tune

from cotbert_core.errors import UserError
from pipelines.recipes import RECIPES
from pipelines.tuning.trial_plan import DEFAULT_TRIALS, plan_trials, sampled_plan, samples_of
from tune_spaces import Space
from tune_spaces.axes import choice, grid

BASE = RECIPES["cot-bert-base"]()
GRID = Space(
    "grid",
    "A grid.",
    "cot-bert-base",
    {"method.temperature": tune.grid_search([0.03, 0.05]), "batch_size": tune.choice([64, 128])},
)
RANGE = Space(
    "range",
    "A range under two variants.",
    "cot-bert-base",
    {"method.temperature": tune.loguniform(0.01, 0.2), "batch_size": tune.choice([64, 128])},
    {"pad": {"method.denoise": "pad"}, "none": {"method.denoise": "none"}},
)


def test_a_grid_is_run_whole_and_in_order():
    values = [tuple(sample.values()) for sample in samples_of(GRID, None, 0)]
    assert values == [(0.03, 64), (0.03, 128), (0.05, 64), (0.05, 128)]
    assert samples_of(GRID, 9, 0) == samples_of(GRID, None, 0)


def test_some_of_a_grid_are_distinct_points_of_it_drawn_by_seed():
    some = [samples_of(GRID, 2, seed) for seed in range(12)]
    whole = samples_of(GRID, None, 0)
    assert all(len(s) == 2 and s[0] != s[1] and s[0] in whole and s[1] in whole for s in some)
    assert some[0] == samples_of(GRID, 2, 0)
    assert any(s != some[0] for s in some)


def test_ranges_are_drawn_by_seed_and_variants_come_in_turn():
    samples = samples_of(RANGE, 6, 3)
    assert samples == samples_of(RANGE, 6, 3) == samples_of(RANGE, 9, 3)[:6]
    assert samples != samples_of(RANGE, 6, 4)
    assert [s["variant"] for s in samples] == ["pad", "none"] * 3
    assert len({s["method.temperature"] for s in samples}) == 6
    assert all(0.01 <= s["method.temperature"] <= 0.2 for s in samples)
    assert len(samples_of(RANGE, None, 0)) == DEFAULT_TRIALS
    assert json.loads(json.dumps(samples)) == samples


@pytest.mark.parametrize(
    ("space", "trials", "search"),
    [(GRID, None, "grid"), (GRID, 4, "grid"), (GRID, 9, "grid"), (GRID, 3, "random"),
     (RANGE, 3, "random"), (RANGE, None, "random")],
)  # fmt: skip
def test_a_plan_says_how_its_trials_were_chosen(space, trials, search):
    assert sampled_plan(space, BASE, trials, (0, 1), 0).search == search


def test_every_trial_runs_under_every_seed():
    trials = plan_trials(RANGE, BASE, 2, (5, 6), 0)
    assert [t.name for t in trials] == ["0000", "0001", "0002", "0003"]
    assert [t.settings.seed for t in trials] == [5, 6, 5, 6]
    assert [t.settings.method.denoise for t in trials] == ["pad", "pad", "none", "none"]
    assert trials[0].settings.method.temperature == trials[1].settings.method.temperature
    assert trials[0].sample["seed"] == 5


def test_a_space_that_draws_the_seed_has_no_others():
    space = Space("seeds", "Seeds.", "cot-bert-base", {"seed": tune.grid_search([3, 4])})
    assert [t.settings.seed for t in plan_trials(space, BASE, None, (0,), 0)] == [3, 4]
    with pytest.raises(UserError, match="samples the seed itself: leave --seeds out"):
        plan_trials(space, BASE, None, (0, 1), 0)


def test_an_encoder_of_a_sample_is_found_from_the_trials_folder(tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path)
    space = Space("which", "W.", "cot-bert-base", {"encoder": tune.grid_search(["mine"])})
    (trial,) = plan_trials(space, BASE, None, (0,), 0)
    assert trial.settings.encoder == str(tmp_path / "mine")


def test_numbers_of_numpy_become_json():
    axes = {"batch_size": grid(np.arange(64, 129, 64)), "seed": choice(np.array([3]))}
    samples = samples_of(Space("numpy", "N.", "cot-bert-base", axes), None, 0)
    assert json.dumps(samples) == '[{"batch_size": 64, "seed": 3}, {"batch_size": 128, "seed": 3}]'


def test_a_sample_that_makes_no_settings_is_named():
    space = Space("bad", "Bad.", "cot-bert-base", {"method.temperature": tune.grid_search([0.0])})
    with pytest.raises(UserError, match=r"bad with method.temperature=0.0, seed=0: .*greater"):
        plan_trials(space, BASE, None, (0,), 0)
