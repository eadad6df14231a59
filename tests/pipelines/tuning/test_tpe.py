"""What Optuna suggests: values that Ray Tune would draw, better ones than chance, none twice."""

from __future__ import annotations

import math

import numpy as np
import pytest
from ray import tune

from pipelines.tuning.optuna_sampler import ASKED, BY_CHANCE, ObservedTrial, Suggestions
from pipelines.tuning.trial_plan import samples_of
from tune_spaces import SPACES, Space
from tune_spaces.axes import Choice, axis_of

pytest.importorskip("optuna", reason="needs the extra 'optuna'")

HEAT = SPACES["temperature"]()
KEY = "method.temperature"


def space_of(**axes):
    return Space("s", "S.", "quickstart", axes)


def score(sample):
    """Smooth, and best at the papers' 0.05."""
    return 80 - 5 * math.log(sample[KEY] / 0.05) ** 2


def chosen(space, count, seed, judge, observed=()):
    """Return `observed` and `count` more trials, each with its score."""
    suggestions, observed = Suggestions(space, seed), list(observed)
    for _ in range(count):
        drawn = suggestions.next(observed)
        observed.append(ObservedTrial(drawn, "finished", judge(suggestions.sample(drawn))))
    return observed


def exact(value):
    """Ray Tune's 3 * 0.1 is above the end that it was given, 0.3."""
    return round(value, 9) if isinstance(value, float) else value


def best(observed):
    return max(t.score for t in observed)


def test_a_better_temperature_is_found_than_by_chance():
    optuna = [80 - best(chosen(HEAT, 24, seed, score)) for seed in range(12)]
    chance = [80 - max(map(score, samples_of(HEAT, 24, seed))) for seed in range(12)]
    assert np.mean(optuna) < 0.25 * np.mean(chance)
    # It learns by the score: by another one it finds nothing.
    misled = [chosen(HEAT, 24, seed, lambda sample: -sample[KEY])[4:] for seed in range(3)]
    assert np.mean([[t.params[KEY] < 0.03 for t in observed] for observed in misled]) > 0.8


def test_a_seed_gives_the_same_samples_and_another_gives_others():
    observed = chosen(HEAT, 8, 3, score)
    assert observed == chosen(HEAT, 8, 3, score)
    assert observed[0] != chosen(HEAT, 1, 4, score)[0]
    assert len({t.params[KEY] for t in observed}) == 8
    # Only the observed trials matter, not how many suggestions were made before.
    assert chosen(HEAT, 3, 3, score, observed[:5])[5:] == observed[5:]
    assert chosen(HEAT, 1, 3, score, observed[:5])[5] != observed[6]


@pytest.mark.parametrize(
    "axis",
    [tune.grid_search(["a", 2, None]), tune.choice([1, True, "1", 1.5]), tune.randint(4, 9),
     tune.lograndint(1, 6), tune.qrandint(3, 16, 4), tune.qrandint(3, 6, 1),
     tune.qlograndint(8, 33, 8), tune.quniform(0.5, 0.9, 0.1), tune.quniform(0.1, 0.3, 0.1),
     tune.qloguniform(0.1, 0.5, 0.1), tune.uniform(0.5, 0.5)],
)  # fmt: skip
def test_all_values_of_an_axis_and_no_others_come_each_once(axis):
    suggestions = Suggestions(space_of(x=axis), 0)
    count = suggestions.count()
    observed = chosen(space_of(x=axis), count, 0, lambda sample: 1.0)
    got = [suggestions.sample(t.params)["x"] for t in observed]
    generator, own = np.random.RandomState(0), axis_of(axis)
    is_choice = isinstance(own, Choice)
    draws = own.values if is_choice else [axis.sample(random_state=generator) for _ in range(200)]
    distinct = {(type(value), exact(value)) for value in draws}
    assert {(type(value), exact(value)) for value in got} == distinct
    assert len(got) == len(distinct) == count
    observed = [v["x"] for v in suggestions.each_value(100)]
    assert sorted(map(str, observed)) == sorted(map(str, got))


@pytest.mark.parametrize("axis", [tune.uniform(0.2, 0.9), tune.loguniform(1e-5, 1e-2)])
def test_a_range_is_without_end_and_within_its_ends(axis):
    suggestions = Suggestions(space_of(x=axis), 0)
    assert suggestions.count() is None
    observed = chosen(space_of(x=axis), 30, 0, lambda sample: sample["x"])
    got = [suggestions.sample(t.params)["x"] for t in observed]
    assert all(type(x) is float and axis.lower <= x <= axis.upper for x in got)
    assert len(set(got)) == 30
    assert np.median(got[BY_CHANCE:]) > np.median([axis.sample() for _ in range(200)])


def test_variants_are_an_axis_and_long_ranges_are_not_walked_whole():
    variants = {"p": {}, "q": {"b": 1}, "r": {}}
    space = Space("v", "V.", "quickstart", {"a": tune.randint(0, 10**6)}, variants)
    suggestions = Suggestions(space, 0)
    observed = chosen(space, 20, 0, lambda sample: float(sample["variant"] == "q"))
    names = [suggestions.sample(t.params)["variant"] for t in observed]
    assert names.count("q") > 10
    assert suggestions.count() == 3 * 10**6
    values = list(suggestions.each_value(5))
    assert [v["variant"] for v in values] == ["p", "q", "r", *"ppppp"]
    assert [v["a"] for v in values[3:]] == [0, 250_000, 500_000, 749_999, 999_999]


def near(others, observed):
    """Share of 20 suggestions within 0.1 of 0.52, the place of the last of ten observed trials."""
    space = space_of(x=tune.uniform(0, 1))
    asked = [Suggestions(space, seed).next([*others, observed])["x"] for seed in range(20)]
    return sum(abs(x - 0.52) < 0.1 for x in asked) / 20


def test_what_became_of_a_sample_makes_a_difference():
    """Nine samples are spread from 0 to 1, the lowest is best; of ten Optuna keeps the best."""
    there, spread = {"x": 0.52}, [{"x": n / 8} for n in range(9)]
    others = [ObservedTrial(x, "finished", 50.0 - n) for n, x in enumerate(spread)]
    assert near(others, ObservedTrial(there, "finished", 90.0)) >= 0.7
    for status in ("failed", "unfinished"):
        assert near(others, ObservedTrial(there, status)) <= 0.3
    # A stopped one ranks below all that finished, whatever its scores were.
    assert near(others, ObservedTrial(there, "stopped", None, {2: 90.0})) <= 0.3
    # Of the stopped ones, the one that came furthest is the best.
    stopped = [ObservedTrial(x, "stopped", None, {2: 50.0 - n}) for n, x in enumerate(spread)]
    assert near(stopped, ObservedTrial(there, "stopped", None, {2: 30.0, 4: 35.0})) >= 0.7


def test_failures_alone_leave_it_to_chance():
    observed = [ObservedTrial({KEY: x}, "failed") for x in np.linspace(0.01, 0.2, 9)]
    suggestions = [Suggestions(HEAT, seed).next(observed)[KEY] for seed in range(40)]
    quarter = 0.01 * 20**0.25
    assert 2 <= sum(x < quarter for x in suggestions) <= 20


def test_chance_draws_where_optuna_insists(monkeypatch):
    """Of 60 values all but one are known, and Optuna keeps to the best."""
    space = space_of(x=tune.randint(0, 60))
    known = [ObservedTrial({"x": x}, "finished", float(x)) for x in range(60) if x != 7]
    asked = []
    whole = Suggestions._asked

    def counted(self, observed):
        for drawn in whole(self, observed):
            asked.append(drawn)
            yield drawn

    monkeypatch.setattr(Suggestions, "_asked", counted)
    assert Suggestions(space, 0).next(known) == {"x": 7}
    assert len(asked) > ASKED
