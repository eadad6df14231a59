"""The samples of a sweep that Optuna leads: better ones than by chance, none twice, and the same
ones after a restart."""

from __future__ import annotations

import math
from importlib import util
from types import SimpleNamespace

import numpy as np
import pytest
from left_trials import leave_trial
from ray import tune

from cotbert_core.errors import UserError
from cotbert_core.files import write_json
from cotbert_core.settings import override
from pipelines.cli import main
from pipelines.recipes import RECIPES
from pipelines.storage.output_folder import changed_settings
from pipelines.training.early_stopping import should_continue
from pipelines.tuning import optuna_plan
from pipelines.tuning.options import Stopping
from pipelines.tuning.optuna_plan import OptunaPlan, optuna_axis
from pipelines.tuning.progress import ProgressCallback
from pipelines.tuning.run_trials import PlanSearcher, _scheduler
from pipelines.tuning.trial_plan import DEFAULT_TRIALS, samples_of
from tune_spaces import SPACES, Space
from tune_spaces.axes import Choice, axis_of

optuna = pytest.importorskip("optuna", reason="needs the extra 'optuna'")

BASE = RECIPES["cot-bert-base"]()
HEAT = SPACES["temperature"]()
KEY = "method.temperature"


def plan_of(folder, samples=8, seeds=(0,), space=HEAT, base=BASE, draw_seed=0):
    plan = OptunaPlan(space, base, samples, seeds, draw_seed)
    folder.mkdir(exist_ok=True)
    plan.open(folder)
    return plan


def end(folder, name, score, status="finished", curve=None):
    """What a trial of this name leaves behind."""
    leave_trial(folder, name, {0: 99.0, **(curve or {2: score - 1, 4: score})}, status)


def score(trial):
    """Recorded: best at 0.05, and a bit of each seed's own."""
    return smooth(trial.settings.method.temperature) + 0.1 * trial.settings.seed


def smooth(heat):
    return 80 - 5 * math.log(heat / 0.05) ** 2


def run(plan, folder, statuses=None, until=None):
    """Trials one at a time, as long as there are more; of the last one only the start."""
    for name, trial in plan.trials.items():
        if not (folder / name).exists():
            end(folder, name, score(trial), (statuses or {}).get(name, "finished"))
    while (trial := plan.grow()) is not None and trial.name != until:
        end(folder, trial.name, score(trial), (statuses or {}).get(trial.name, "finished"))
    return {name: trial.sample for name, trial in plan.trials.items()}


@pytest.mark.parametrize("seeds", [(0,), (3, 5)])
@pytest.mark.parametrize("until", ["0000", "0003", "0006"])
def test_a_restart_suggests_what_was_suggested_without_one(tmp_path, until, seeds):
    statuses = {"0002": "failed", "0004": "stopped"}
    whole = tmp_path / "whole"
    expected = run(plan_of(whole, seeds=seeds), whole, statuses)
    assert len(expected) == 8 * len(seeds)
    killed = tmp_path / "killed"
    begun = run(plan_of(killed, seeds=seeds), killed, statuses, until)
    assert list(begun)[-1] == until
    again = plan_of(killed, seeds=seeds)
    known = {name: trial.sample for name, trial in again.trials.items()}
    assert known.items() >= begun.items()
    assert len(known) - len(begun) in range(len(seeds)), "a sample is kept with all its seeds"
    assert run(again, killed, statuses) == expected
    assert plan_of(killed, seeds=seeds).grow() is None
    # A case that must differ: the scores decide.
    other = tmp_path / "other"
    assert run(plan_of(other, seeds=seeds), other, {}) != expected


def test_what_is_sampled_is_kept_before_a_trial_starts(tmp_path):
    """Of trials side by side, each has another sample."""
    plan = plan_of(tmp_path)
    trials = [plan.grow() for _ in range(8)]
    assert plan.grow() is None
    assert [t.name for t in trials] == [f"{n:04}" for n in range(8)]
    assert len({trial.sample[KEY] for trial in trials}) == 8
    assert plan_of(tmp_path).trials == {trial.name: trial for trial in trials}
    for trial in trials:
        assert trial.settings == override(BASE, {KEY: trial.sample[KEY], "seed": 0})
    assert [path.name for path in tmp_path.iterdir()] == ["optuna.log"], "no folder of a trial"
    default = OptunaPlan(HEAT, BASE, None, (0, 1), 0)
    assert (len(default.record["axes"]), default.total) == (1, 2 * DEFAULT_TRIALS)
    small = OptunaPlan(SPACES["temperature-grid"](), BASE, None, (0, 1), 0)
    assert small.total == 2 * 7 < 2 * DEFAULT_TRIALS, "each of the space's points"


def test_all_seeds_run_a_sample_and_optuna_hears_the_mean(tmp_path):
    """Of a finished or stopped sample; one that failed or diverged has no score."""

    def heard():
        return [trial.value for trial in plan._study.trials]

    plan = plan_of(tmp_path, 5, (3, 5))
    first, second = plan.grow(), plan.grow()
    assert first.sample[KEY] == second.sample[KEY]
    assert (first.settings.seed, second.settings.seed) == (3, 5)
    outcomes = [
        [("finished", 70.0), ("stopped", 52.0)],
        [("finished", 70.0), ("failed", 0.0)],
        [("finished", 70.0), ("finished", math.nan)],
        [("finished", 40.0), ("finished", 50.0)],
    ]
    for number, pair in enumerate(outcomes):
        for seed, (status, best) in enumerate(pair):
            end(tmp_path, f"{2 * number + seed:04}", best, status)
        plan.grow()
        assert heard()[number + 1] is None, "it has not ended"
        plan.grow()
    assert heard() == [61.0, None, None, 45.0, None]


def test_better_temperatures_are_sampled_than_by_chance(tmp_path):
    def sampled(number, judge):
        folder = tmp_path / f"{judge.__name__}-{number}"
        plan = plan_of(folder, 24, draw_seed=number)
        while (trial := plan.grow()) is not None:
            end(folder, trial.name, judge(trial.sample[KEY]))
        return [trial.sample[KEY] for trial in plan.trials.values()]

    def coldest(heat):
        return -heat

    def share_near(heats):
        return np.mean([abs(math.log(heat / 0.05)) < math.log(1.3) for heat in heats])

    led = [heat for seed in range(3) for heat in sampled(seed, smooth)[12:]]
    chance = [one[KEY] for seed in range(3) for one in samples_of(HEAT, 24, seed)]
    assert share_near(led) > 1.6 * share_near(chance)
    # It learns by the score: by another one it finds nothing.
    misled = [heat for seed in range(2) for heat in sampled(seed, coldest)[12:]]
    assert np.mean([heat < 0.03 for heat in misled]) > 0.8
    assert sampled(3, coldest) != sampled(4, coldest), "the seed of the sampling"


def test_no_sample_comes_twice(tmp_path):
    """Optuna suggests the best one again and again, until chance gives the last one."""
    axes = {"batch_size": tune.choice([32, 64, 96]), "method.denoise": tune.choice(["pad", "none"])}
    space = Space("few", "Few.", "cot-bert-base", axes)
    plan = plan_of(tmp_path, 6, space=space)
    while (trial := plan.grow()) is not None:
        end(tmp_path, trial.name, float(trial.sample["batch_size"]))
    assert len({tuple(trial.sample.items()) for trial in plan.trials.values()}) == 6
    assert len(plan._study.trials) > 6, "premise: some were suggested again"
    assert plan_of(tmp_path, 6, space=space).trials == plan.trials


def exact(value):
    """Ray Tune's 3 * 0.1 is above the end that it was given, 0.3."""
    return round(value, 9) if isinstance(value, float) else value


@pytest.mark.parametrize(
    "axis",
    [tune.grid_search(["a", 2, None]), tune.choice([1, True, "1", 1.5]), tune.randint(4, 9),
     tune.lograndint(1, 6), tune.qrandint(3, 16, 4), tune.qrandint(3, 6, 1),
     tune.qlograndint(8, 33, 8), tune.quniform(0.5, 0.9, 0.1), tune.quniform(0.1, 0.3, 0.1),
     tune.qloguniform(0.1, 0.5, 0.1), tune.uniform(0.5, 0.5)],
)  # fmt: skip
def test_an_axis_has_the_values_that_ray_tune_samples_and_no_others(axis):
    own = axis_of(axis)
    made, generator = optuna_axis(own), np.random.RandomState(0)
    ends = made.distribution
    is_range = isinstance(ends, optuna.distributions.IntDistribution)
    numbers = range(ends.low, ends.high + 1) if is_range else ends.choices
    is_choice = isinstance(own, Choice)
    draws = own.values if is_choice else [axis.sample(random_state=generator) for _ in range(200)]
    got = [(type(value), exact(value)) for value in map(made.value, numbers)]
    assert set(got) == {(type(value), exact(value)) for value in draws}
    assert len(got) == len(set(got)) == made.count


@pytest.mark.parametrize("axis", [tune.uniform(0.2, 0.9), tune.loguniform(1e-5, 1e-2)])
def test_a_range_is_without_end_and_within_its_ends(axis):
    made = optuna_axis(axis_of(axis))
    assert (made.distribution.low, made.distribution.high) == (axis.lower, axis.upper)
    assert made.count == math.inf


def test_the_values_of_a_long_range_are_checked_evenly(monkeypatch):
    monkeypatch.setattr(optuna_plan, "CHECKED", 3)
    axes = {"optimizer.warmup_steps": tune.randint(0, 101)}
    plan = OptunaPlan(Space("w", "W.", "cot-bert-base", axes), BASE, 3, (0,), 0)
    assert [point["optimizer.warmup_steps"] for point in plan._steps()] == [0, 50, 100]


def test_a_range_of_fractions_is_refused_for_a_whole_number():
    space = Space("sizes", "Sizes.", "cot-bert-base", {"batch_size": tune.uniform(32, 64)})
    with pytest.raises(UserError, match=r"batch_size is 32\.0.*: input should be a valid"):
        OptunaPlan(space, BASE, 3, (0,), 0)


def test_turns_begin_with_what_is_unfinished_and_end_with_the_plan(tmp_path):
    plan = plan_of(tmp_path, 4)
    trials = [plan.grow() for _ in range(3)]
    end(tmp_path, "0000", 70.0)
    end(tmp_path, "0002", 0, "failed")
    plan = plan_of(tmp_path, 4)
    turns = PlanSearcher(plan, tmp_path, 2)
    assert turns.left == 3
    *given, last = [turns.suggest(str(n)) for n in range(4)]
    assert [g["trial"] for g in given] == ["0001", "0002", "0003"]
    assert last == PlanSearcher.FINISHED
    assert given[0]["settings"] == override(trials[1].settings, {"cpus_per_worker": 2}).model_dump()
    (tmp_path / "0002" / "failed.json").unlink()
    for name in ("0001", "0002", "0003"):
        end(tmp_path, name, 70.0)
    assert PlanSearcher(plan_of(tmp_path, 4), tmp_path, None).left == 0


def test_later_trials_are_shown_and_stopped_as_known_ones_are(tmp_path, capsys):
    plan = plan_of(tmp_path, 5)
    scheduler = _scheduler(Stopping(1), plan, tmp_path, lambda settings: 9)
    watch = ProgressCallback(plan, tmp_path, lambda settings: 9)
    made = {}
    while (trial := plan.grow()) is not None:
        here = SimpleNamespace(trial_id=trial.name, config={"trial": trial.name})
        scheduler.on_trial_add(None, here)
        for step in (1, 3, 9):
            result = {"step": step, "dev_score": 90.0 - 10 * len(plan.trials) + step}
            watch.on_trial_result(0, [], here, result)
            scheduler.on_trial_result(None, here, result)
            made[trial.name] = step
            if not should_continue(tmp_path / trial.name, step, wait=0):
                break
        end(tmp_path, trial.name, 0, curve={1: 81.0, made[trial.name]: 80.0})
        watch.on_trial_complete(0, [], here)
    assert made == {"0000": 9, "0001": 1, "0002": 1, "0003": 1, "0004": 1}
    shown = capsys.readouterr().err
    for text in ("0000 step 1/9 dev 81.00", "trial 0/5", "trial 5/5", "temperature="):
        assert text in shown


def test_the_record_is_the_same_for_the_same_command_alone(tmp_path):
    axes = {KEY: tune.loguniform(0.01, 0.2), "batch_size": tune.choice([64, 128])}
    variants = {name: {"method.denoise": name} for name in ("pad", "none")}
    space = Space("mixed", "Mixed.", "cot-bert-base", axes, variants)

    def record(space=space, base=BASE, samples=5, seeds=(0, 1), draw_seed=0):
        return OptunaPlan(space, base, samples, seeds, draw_seed).record

    write_json(tmp_path / "settings.json", record())
    narrow = Space("mixed", "", "", {**space.settings, KEY: tune.uniform(0.01, 0.2)})
    variants = ("variants.pad.method.denoise", "variants.none.method.denoise")
    changes = {
        (): record(),
        ("draw_seed",): record(draw_seed=1),
        ("seeds",): record(seeds=(0, 2)),
        ("trials",): record(samples=6),
        ("settings.max_length",): record(base=override(BASE, {"max_length": 16})),
        (f"axes.{KEY}", *variants): record(narrow),
    }
    for names, other in changes.items():
        assert tuple(changed_settings(tmp_path / "settings.json", other)) == names


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"seed": tune.grid_search([1, 2])}, "space s samples the seed, and no seed is better"),
        ({KEY: tune.choice([0.1, 0.2])}, "trials is 3 and space s has 2 different samples: give"),
        ({KEY: tune.uniform(-1.0, 0.2)}, "space s with method.temperature=-1.0: .*greater"),
        ({"batch_size": tune.randint(4, 9)}, "space s with batch_size=5: .*multiple of workers"),
    ],
)
def test_what_no_suggestion_should_stumble_over_is_reported_first(axes, message):
    base = override(BASE, {"workers": 2})
    with pytest.raises(UserError, match=message):
        OptunaPlan(Space("s", "S.", "cot-bert-base", axes), base, 3, (0,), 0)


def test_a_search_without_its_extra_is_refused(monkeypatch, tmp_path, capsys):
    """Before the corpus is looked at, which is not there."""
    monkeypatch.setattr(util, "find_spec", lambda name: None)
    place = ("--corpus", str(tmp_path / "none"), "--output", str(tmp_path / "out"))
    assert main(["tune", "temperature", *place, "--search", "optuna"]) == 2
    assert "needs optuna: install with pip install 'optuna<" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
