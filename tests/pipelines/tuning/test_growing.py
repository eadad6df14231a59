"""A plan that grows: samples are kept, and a restart continues as if nothing had happened."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
from left_trials import leave_trial
from ray import tune

from cotbert_core.errors import UserError
from cotbert_core.files import read_json, write_json
from cotbert_core.settings import override
from pipelines.cli import main
from pipelines.recipes import RECIPES
from pipelines.storage.output_folder import changed_settings
from pipelines.training.early_stopping import should_continue
from pipelines.tuning import optuna_plan
from pipelines.tuning.options import Stopping, TuneOptions
from pipelines.tuning.optuna_plan import OptunaPlan, observed
from pipelines.tuning.plan_searcher import PlanSearcher
from pipelines.tuning.progress import ProgressCallback
from pipelines.tuning.run_trials import _scheduler
from pipelines.tuning.trial_plan import DEFAULT_TRIALS
from tune_spaces import SPACES, Space

pytest.importorskip("optuna", reason="needs the extra 'optuna'")

BASE = RECIPES["cot-bert-base"]()
HEAT = SPACES["temperature"]()
KEY = "method.temperature"


def plan_of(folder, samples=8, seeds=(0,), space=HEAT, base=BASE):
    plan = OptunaPlan(space, base, samples, seeds, 0)
    folder.mkdir(exist_ok=True)
    plan.open(folder)
    return plan


def end(folder, name, score, status="finished", curve=None):
    """What a trial of this name leaves behind."""
    leave_trial(folder, name, {0: 99.0, **(curve or {2: score - 1, 4: score})}, status)


def score(trial):
    """Recorded: best at 0.05, and a bit of each seed's own."""
    heat = trial.settings.method.temperature
    return 80 - 5 * math.log(heat / 0.05) ** 2 + 0.1 * trial.settings.seed


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
    assert {name: trial.sample for name, trial in again.trials.items()} == begun
    assert run(again, killed, statuses) == expected
    assert plan_of(killed, seeds=seeds).grow() is None
    # A case that must differ: the scores decide.
    other = tmp_path / "other"
    assert run(plan_of(other, seeds=seeds), other, {}) != expected


def test_what_is_drawn_is_kept_before_a_trial_starts(tmp_path):
    """Of trials side by side, each has another sample."""
    plan = plan_of(tmp_path)
    trials = [plan.grow() for _ in range(8)]
    assert plan.grow() is None
    assert [t.name for t in trials] == [f"{n:04}" for n in range(8)]
    assert len({trial.sample[KEY] for trial in trials}) == 8
    for trial in trials:
        assert read_json(tmp_path / f"{trial.name}.drawn.json")["sample"] == {
            KEY: trial.sample[KEY]
        }
        assert trial.settings == override(BASE, {KEY: trial.sample[KEY], "seed": 0})
    assert len([*tmp_path.iterdir()]) == 8, "no folder of a trial, no partial file"
    default = OptunaPlan(HEAT, BASE, None, (0, 1), 0)
    assert (len(default.record["axes"]), default.total) == (1, 2 * DEFAULT_TRIALS)


def test_all_seeds_run_a_sample_and_optuna_hears_the_mean(tmp_path):
    plan = plan_of(tmp_path, 2, (3, 5))
    first, second = plan.grow(), plan.grow()
    assert first.sample[KEY] == second.sample[KEY]
    assert (first.settings.seed, second.settings.seed) == (3, 5)
    folders, drawn = [tmp_path / "0000", tmp_path / "0001"], {KEY: 0.05}
    assert observed(drawn, folders).status == "unfinished"
    end(tmp_path, "0000", 0, curve={2: 70.0, 4: 60.0})
    assert observed(drawn, folders).status == "unfinished"
    end(tmp_path, "0001", 0, curve={2: 50.0, 4: 52.0})
    whole = observed(drawn, folders)
    assert (whole.status, whole.score, dict(whole.curve)) == ("finished", 61.0, {})
    end(tmp_path, "0001", 0, curve={2: math.nan, 4: math.nan})
    assert observed(drawn, folders).status == "failed"
    end(tmp_path, "0001", 0, "stopped", curve={2: 50.0, 4: 52.0})
    stopped = observed(drawn, folders)
    assert (stopped.status, stopped.score) == ("stopped", None)
    assert stopped.curve == {2: 60.0, 4: 56.0}
    (tmp_path / "0001" / "result.json").unlink()
    end(tmp_path, "0001", 0, "failed")
    assert observed(drawn, folders).status == "failed"


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


def test_an_unknown_search_and_one_without_its_extra_are_refused(monkeypatch, tmp_path, capsys):
    """Before the corpus is looked at, which is not there."""
    monkeypatch.setattr(optuna_plan.util, "find_spec", lambda name: None)
    place = ("--corpus", str(tmp_path / "none"), "--output", str(tmp_path / "out"))
    assert main(["tune", "temperature", *place, "--search", "optuna"]) == 2
    assert "pip install 'cotbert[optuna]'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    with pytest.raises(UserError, match="unknown search 'anneal': choose one of grid, optuna"):
        TuneOptions(HEAT, "cot-bert-base", search="anneal")
