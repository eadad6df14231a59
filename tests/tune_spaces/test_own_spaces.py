"""A user's own spaces: what the files mean, and one sentence for each fault."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cotbert_core.errors import UserError
from cotbert_core.settings import override
from pipelines.recipes import RECIPES
from tune_spaces import SPACES, changes, corners, open_space, size
from tune_spaces.axes import choice, grid

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "tuning.md").read_text(encoding="utf-8")
YAML = """
name: mine
purpose: Two rates under two ways of denoising.
recipe: quickstart
settings:
  optimizer.learning_rate: {grid: [3e-5, 1e-4]}
  batch_size: {choice: [32, 64]}
variants:
  plain: {method.denoise: none, method.extended: false}
  1: {method.denoise: pad, templates.anchor: 'The sentence 1 : "[X]" means [MASK] [MASK] .'}
published: {plain: 78.5}
source: nowhere
"""
PYTHON = """
from ray import tune
from tune_spaces import Space

STEPS = 0.025

def space():
    axis = tune.quniform(0.5, 0.9, STEPS)
    return Space("mine", "Less noise.", "denosent-base", {"method.dropout": axis})
"""


def write(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def builds(space):
    """All corners as settings; UserError for one that is none."""
    recipe = RECIPES[space.recipe]()
    return [override(recipe, changes(space, point)) for point in corners(space)]


@pytest.mark.parametrize("ending", ["yaml", "yml", "YAML"])
def test_a_yaml_file(tmp_path, ending):
    space = open_space(write(tmp_path, f"a.{ending}", YAML))
    assert (space.name, space.recipe, space.source) == ("mine", "quickstart", "nowhere")
    assert space.purpose.startswith("Two rates")
    axes = {"optimizer.learning_rate": grid([3e-5, 1e-4]), "batch_size": choice([32, 64])}
    assert space.settings == axes
    assert list(space.variants) == ["plain", "1"]
    assert space.variants["plain"] == {"method.denoise": "none", "method.extended": False}
    assert size(space) == len(builds(space)) == 8
    assert space.published == {"plain": 78.5}


def test_a_yaml_file_without_a_name_has_that_of_the_file(tmp_path):
    text = "recipe: quickstart\nsettings: {method.temperature: {loguniform: [1e-2, 0.2]}}\n"
    space = open_space(write(tmp_path, "heat.yaml", text))
    assert (space.name, space.purpose, size(space)) == ("heat", "", None)
    assert str(space.settings["method.temperature"]) == "0.01 to 0.2, log-uniform"


def test_a_name_of_digits_is_no_number(tmp_path):
    text = "recipe: quickstart\nsettings: {encoder: {grid: [032, '20241127', 20241128]}}\n"
    made = builds(open_space(write(tmp_path, "a.yaml", text)))
    assert [settings.encoder for settings in made] == ["032", "20241127", "20241128"]


def test_a_python_file_leaves_nothing_beside_it(tmp_path):
    space = open_space(write(tmp_path, "a.py", PYTHON))
    assert str(space.settings["method.dropout"]) == "0.5 to 0.9, uniform, in steps of 0.025"
    assert [made.method.dropout for made in builds(space)] == [0.5, 0.9]
    assert [path.name for path in tmp_path.iterdir()] == ["a.py"]


def yaml_of(settings="", variants="", rest=""):
    return f"recipe: quickstart\nsettings: {{{settings}}}\nvariants: {{{variants}}}\n{rest}\n"


def python_of(arguments):
    return (
        "from ray import tune\nfrom tune_spaces import Space\n"
        f'def space(): return Space("a", "b", "quickstart", {arguments})\n'
    )


FAULTS = {
    "no file": ("none.yaml", None, "cannot be read"),
    "no python file": ("none.py", None, "there is no such file"),
    "no yaml": (
        "a.yaml",
        "a: [1\nb: }",
        r"it is not valid YAML in line 2, column 2 \(expected ',' or '\]', but got ':'\); cor",
    ),
    "control character": (
        "a.yaml",
        "a: \0",
        r"it cannot be read \(unacceptable character [^\n]*\)",
    ),
    "not utf-8": ("a.yaml", b"\xff\xfe\xff", "cannot be read"),
    "a list": ("a.yaml", "- a", "has no space; give the fields name, purpose, recipe, settings, v"),
    "empty": ("a.yaml", "", "has no space"),
    "unknown key": ("a.yaml", yaml_of(rest="setings: {}"), "'setings' is unknown; a space has"),
    "no recipe": ("a.yaml", "settings: {}", "it names no recipe; add `recipe: NAME`, one of"),
    "recipe of no name": ("a.yaml", "recipe: 3", "recipe is 3: give one of `cotbert recipes`"),
    "nothing": ("a.yaml", yaml_of(), "has no settings and no variants; give one of them"),
    "settings": ("a.yaml", "recipe: a\nsettings: 3", "settings is 3: write `name: value` lines"),
    "bare value": ("a.yaml", yaml_of("seed: 3"), r"seed is 3: give \{grid: \[a, b\]\}"),
    "kind": ("a.yaml", yaml_of("seed: {grit: [1, 2]}"), r"seed is \{'grit': \[1, 2\]\}: give"),
    "two kinds": ("a.yaml", yaml_of("seed: {grid: [1], choice: [2]}"), "seed is .*: give"),
    "no values": ("a.yaml", yaml_of("seed: {grid: []}"), r"seed is \{'grid': \[\]\}: give"),
    "equal": ("a.yaml", yaml_of("seed: {choice: [1, 2, 1]}"), "of seed hold 1 twice; give each"),
    "nested": ("a.yaml", yaml_of("method: {dropout: {grid: [1]}}"), "method is .*: give"),
    "a list of lists": ("a.yaml", yaml_of("seed: {grid: [[1]]}"), r"seed is \[1\]: give one value"),
    "three ends": ("a.yaml", yaml_of("seed: {uniform: [1, 2, 3]}"), "give two numbers, the lower"),
    "turned round": ("a.yaml", yaml_of("seed: {uniform: [2, 1]}"), "the lower one first"),
    "no number": ("a.yaml", yaml_of("seed: {uniform: [a, 1]}"), "seed is .*give two numbers"),
    "truth": ("a.yaml", yaml_of("seed: {uniform: [false, true]}"), "seed is .*give two numbers"),
    "log of 0": ("a.yaml", yaml_of("seed: {loguniform: [0, 1]}"), "two numbers, above 0, the low"),
    "variant": ("a.yaml", yaml_of("", "a: 3"), "variant a is 3: give settings and their values"),
    "nested variant": ("a.yaml", yaml_of("", "a: {b: {c: 1}}"), "b of variant a is .*dots"),
    "twice": ("a.yaml", yaml_of("seed: {grid: [1]}", "a: {seed: 3}"), "settings and in variant a;"),
    "reserved": ("a.yaml", yaml_of("variant: {grid: [1]}"), "'variant' is not a setting"),
    "figure": ("a.yaml", yaml_of("seed: {grid: [1]}", "", "published: {a: b}"), "a is 'b': give"),
    "syntax": ("a.py", "def space(:", "fails with SyntaxError"),
    "python": ("a.py", "def space():\n    return nobody\n", "NameError: name 'nobody' is not def"),
    "an end": ("a.py", "raise SystemExit", "it fails with SystemExit"),
    "no function": ("a.py", "spaces = 3\n", "has no function `space`"),
    "no space": ("a.py", "def space(): return {}\n", "space\\(\\) returns a dict; return a tune_"),
    "constant": ("a.py", python_of('{"seed": 3}'), "seed is 3: it must be a grid, a choice or a"),
    "no ends": ("a.py", python_of('{"seed": tune.randn()}'), "a range with two ends; give tune"),
    "function": ("a.py", python_of('{"seed": tune.sample_from(id)}'), "seed is .*it must be"),
    "ends": ("a.py", python_of('{"seed": tune.uniform(2, 1)}'), "seed is .*it must be"),
    "python list": ("a.py", python_of("[1]"), r"settings is \[1\]: give a dictionary"),
    "python variants": (
        "a.py",
        python_of('{"seed": 3}, "a"'),
        "variants is 'a': give a dictionary",
    ),
    "no multiple": ("a.py", python_of('{"seed": tune.qrandint(5, 7, 10)}'), "seed is .*it must be"),
    "python variant": ("a.py", python_of('{}, {"a": 3}'), "variant a is 3: give settings"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_one_sentence_that_names_the_file(tmp_path, name):
    file, text, message = FAULTS[name]
    path = tmp_path / file
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError, match=message) as fault:
        open_space(str(path))
    assert str(fault.value).startswith(f"space file {str(path)!r}: ")


def test_a_choice_beside_a_range_may_hold_a_value_twice(tmp_path):
    """Where no trial can be trained twice, the value is sampled twice as often."""
    text = yaml_of("seed: {choice: [1, 2, 1]}, method.temperature: {uniform: [0.1, 0.2]}")
    assert open_space(write(tmp_path, "a.yaml", text)).settings["seed"].values == (1, 2, 1)


@pytest.mark.parametrize("kind", ["yaml", "python"])
def test_the_pages_examples_are_spaces(tmp_path, kind):
    (text,) = re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)
    space = open_space(write(tmp_path, f"a.{kind.replace('python', 'py')}", text))
    assert builds(space)


def test_the_page_names_every_space_with_its_size_and_recipe():
    spaces = PAGE.split("## Search spaces")[1].split("### Your own")[0]
    lines = [line for line in spaces.splitlines() if line.startswith("| `")]
    listed = [[cell.strip(" `") for cell in line.split("|")[1:4]] for line in lines]
    made = [make() for make in SPACES.values()]
    assert listed == [[s.name, str(size(s) or "continuous"), s.recipe] for s in made]
