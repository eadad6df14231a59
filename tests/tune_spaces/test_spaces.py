"""The spaces: every corner and a hundred draws make settings, and the figures are the papers'."""

from __future__ import annotations

import ast
import itertools
import sys
from pathlib import Path

import numpy as np
import pytest
from ray import tune

import tune_spaces
from cotbert_core.errors import UserError
from cotbert_core.settings import flatten, override
from cotbert_core.templates.template_texts import resolve_template
from pipelines.recipes import RECIPES
from pipelines.tuning.trial_plan import samples_of
from tune_spaces import SPACES, Space, axes_of, changes, corners, open_space, size
from tune_spaces.search_space import enough_corners

SIZES = {"temperature-grid": 7, "templates": 14, "denosent-dropout": 15, "cot-bert-ablations": 10}
SIZES |= {"seeds": 10}
# Copied from the papers' tables, not from the code.
TABLE_3 = {
    "only-prefix": 78.91,
    "only-suffix": 78.83,
    "irrelevant-prefix": 78.44,
    "static-prefix": 78.91,
    "reversed": 78.46,
    "cot-bert": 79.40,
}
PUBLISHED = {
    "temperature-grid": {"0.05": 79.40},
    "templates": TABLE_3,
    "cot-bert-ablations": {
        **TABLE_3,
        "without-positive-negative": 79.11,
        "no-denoising": 78.69,
        "position-denoising": 78.89,
    },
}


def label(space, sample):
    """The sampled values of a point, which identify it."""
    return ", ".join(str(sample[key]) for key in axes_of(space))


def settings(space, sample):
    """What a trial of this sample would run."""
    return override(RECIPES[space.recipe](), changes(space, sample))


@pytest.fixture(params=SPACES)
def space(request):
    return SPACES[request.param]()


def test_every_space_says_what_it_is(space):
    assert open_space(space.name).name == space.name
    assert space.purpose.endswith(".")
    assert len(space.purpose) > 40
    assert space.recipe in RECIPES
    assert size(space) == SIZES.get(space.name)


def test_a_hundred_draws_make_settings(space):
    samples = list(itertools.islice(itertools.cycle(samples_of(space, 100, 0)), 100))
    for sample in samples:
        made, wanted = flatten(settings(space, sample)), changes(space, sample)
        assert {path: made[path] for path in wanted} == wanted
    drawn = {label(space, sample) for sample in samples}
    if size(space) is None:
        assert len(drawn) == 100
    else:
        assert drawn == {label(space, point) for point in corners(space)}
        assert len(drawn) == size(space)


def test_every_corner_makes_settings_of_its_own(space):
    points = list(corners(space))
    made = {repr(sorted(flatten(settings(space, point)).items())) for point in points}
    assert len(made) == len(points) > 1


def test_published_figures_are_the_papers_and_the_best_is_the_recipe_itself(space):
    assert dict(space.published) == PUBLISHED.get(space.name, {})
    assert bool(space.source) == bool(space.published)
    points = {label(space, point): point for point in corners(space)}
    assert set(space.published) <= set(points)
    if space.published:
        best = max(space.published, key=space.published.get)
        assert settings(space, points[best]) == RECIPES[space.recipe]()


def test_templates_differ_in_stages_and_quotes():
    space = SPACES["templates"]()
    anchors = {
        name: resolve_template(variant["templates.anchor"])
        for name, variant in space.variants.items()
    }
    names = ("only-prefix", "cot-bert", "three-stages", "four-stages")
    assert [anchors[name].stages for name in names] == [1, 2, 3, 4]
    double = anchors["cot-bert"].text
    assert anchors["no-quotes"].text == double.replace('"', "")
    assert anchors["single-quotes"].text == double.replace('"[X]"', "' [X] '")


def test_a_sample_may_hold_more_than_the_space_draws():
    axes = {"method.temperature": tune.choice([0.1, 0.2])}
    variants = {"a": {"method.denoise": "none"}, "b": {}}
    space = Space("both", "A grid beside variants.", "cot-bert-base", axes, variants)
    sample = {"variant": "a", "method.temperature": 0.1, "seed": 3}
    wanted = {"method.denoise": "none", "method.temperature": 0.1, "seed": 3}
    assert changes(space, sample) == wanted
    assert size(space) == len(list(corners(space))) == 4
    assert changes(space, {**sample, "variant": "b"}).get("method.denoise") is None


@pytest.mark.parametrize(
    ("axis", "text", "ends"),
    [
        (tune.grid_search(["a", 2]), "a, 2", ["a", 2]),
        (tune.choice([16, 12]), "16, 12", [16, 12]),
        (tune.uniform(0.1, 0.5), "0.1 to 0.5, uniform", [0.1, 0.5]),
        (tune.loguniform(1e-6, 1e-4), "1e-06 to 0.0001, log-uniform", [1e-6, 1e-4]),
        (tune.quniform(0.5, 1.0, 0.25), "0.5 to 1.0, uniform, in steps of 0.25", [0.5, 1.0]),
        (tune.quniform(0.1, 0.3, 0.1), "0.1 to 0.3, uniform, in steps of 0.1", [0.1, 0.3]),
        (tune.randint(1, 5), "1 to 4, uniform", [1, 4]),
        (tune.qrandint(64, 512, 64), "64 to 512, uniform, in steps of 64", [64, 512]),
        (tune.qrandint(5, 14, 4), "8 to 12, uniform, in steps of 4", [8, 12]),
        (tune.qrandint(1, 5, 1), "1 to 4, uniform, in steps of 1", [1, 4]),
        (tune.lograndint(1, 65), "1 to 64, log-uniform", [1, 64]),
    ],
)
def test_an_axis_in_words_and_its_ends(axis, text, ends):
    space = Space("s", "", "quickstart", {"x": axis})
    assert str(space.settings["x"]) == text
    assert [p["x"] for p in corners(space)] == ends


@pytest.mark.parametrize(
    "axis",
    [tune.choice([16, "a", 1.5, None]), tune.uniform(0.1, 0.5), tune.uniform(1, 7),
     tune.loguniform(1e-6, 1e-4), tune.quniform(0.1, 0.9, 0.1), tune.qloguniform(0.1, 0.5, 0.1),
     tune.randint(1, 500), tune.lograndint(1, 500), tune.qrandint(3, 160, 4),
     tune.qrandint(3, 60, 1), tune.qlograndint(8, 330, 8)],
    ids=map(str, range(11)),
)  # fmt: skip
def test_an_axis_is_drawn_bit_for_bit_as_ray_tune_draws_it(axis):
    space = Space("s", "", "quickstart", {"x": axis, "y": tune.uniform(0, 1)})
    generator, drawn = np.random.RandomState(3), samples_of(space, 300, 3)
    for sample in drawn:
        value = axis.sample(random_state=generator)
        value = value.item() if isinstance(value, np.generic) else value
        assert (type(sample["x"]), sample["x"]) == (type(value), value)
        assert sample["y"] == generator.uniform(0, 1)
    assert len({sample["x"] for sample in drawn}) > 3


def test_of_many_corners_those_are_enough_that_hold_every_pair_of_values():
    axes = {name: tune.choice(range(4)) for name in "abcd"} | {"e": tune.uniform(0, 1)}
    space = Space("s", "", "quickstart", axes, {"x": {}, "y": {}})
    assert list(enough_corners(space, 4**5)) == list(corners(space))
    some = list(enough_corners(space, 4**5 - 1))
    pairs = {pair for point in corners(space) for pair in itertools.combinations(point.items(), 2)}
    assert {pair for point in some for pair in itertools.combinations(point.items(), 2)} == pairs
    assert len(some) < 0.2 * 4**5
    two = Space("s", "", "quickstart", {"a": tune.choice([1, 2, 3]), "e": tune.uniform(0, 1)})
    assert list(enough_corners(two, 1)) == list(corners(two))


def test_spaces_import_errors_alone():
    found = set()
    for path in Path(tune_spaces.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add(node.module)
    known = {"tune_spaces", *sys.stdlib_module_names}
    assert {n for n in found if n.split(".")[0] not in known} == {"yaml", "cotbert_core.errors"}


def test_an_unknown_space_is_refused_with_the_known_ones():
    with pytest.raises(UserError, match="unknown space 'heat': choose one of cot-bert-ablations, "):
        open_space("heat")
