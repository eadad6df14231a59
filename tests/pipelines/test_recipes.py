"""Recipes: published numbers, and settings from file, --set and flags in that order."""

from __future__ import annotations

import json

import pytest

from cotbert_core.errors import UserError
from cotbert_core.method_settings import METHOD_SETTINGS
from cotbert_core.settings import TrainSettings, flatten, override
from pipelines.cli import main
from pipelines.commands.training import CorpusOptions
from pipelines.recipes import RECIPES, _warn_once, changed_paths, settings_for

PUBLISHED = {
    "batch_size": 256,
    "max_length": 32,
    "epochs": 1,
    "eval_every": 125,
    "method.name": "cot-bert",
    "method.temperature": 0.05,
    "method.denoise": "pad",
    "method.pad_positions": "aligned",
    "method.extended": True,
    "optimizer.learning_rate": 1e-5,
    "optimizer.weight_decay": 0.0,
    "optimizer.clip": 1.0,
    "optimizer.warmup_steps": 0,
    "optimizer.schedule": "linear",
}


def settings(*assignments, config=None, recipe="cot-bert-base", **flags):
    return settings_for(recipe, config, assignments, flags)


def yaml_file(tmp_path, text):
    path = tmp_path / "a.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_builds_and_says_what_it_is(name):
    made = RECIPES[name]()
    assert override(TrainSettings(), flatten(made)) == made
    assert len(RECIPES[name].__doc__) > 20


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_cot_recipes_have_the_published_numbers(name):
    made = flatten(settings(recipe=f"cot-{name}-base"))
    assert {k: v for k, v in made.items() if k in PUBLISHED} == PUBLISHED
    assert made["encoder"] == {"bert": "bert-base-uncased", "roberta": "roberta-base"}[name]
    group = {"bert": "cot-bert", "roberta": "cot-roberta/released"}[name]
    for role in ("anchor", "positive", "negative"):
        assert made[f"templates.{role}"] == f"{group}/{role}"


def test_the_recipe_of_documents_is_a_plain_contrast_with_the_rest():
    made = flatten(settings(recipe="documents"))
    expected = {
        "encoder": "all-MiniLM-L6-v2",
        "method.name": "denosent",
        "method.objective": "contrastive",
        "method.positive": "rest",
        "method.readout": "mean",
        "method.projected": False,
        "method.temperature": 0.05,
        "method.rest_length": 128,
        "optimizer.learning_rate": 3e-5,
        "batch_size": 64,
        "templates.anchor": None,
    }
    assert {key: made[key] for key in expected} == expected
    assert "max_length" not in settings(recipe="documents").model_fields_set, "the corpus's counts"


def test_every_method_has_a_recipe():
    assert {recipe().method.name for recipe in RECIPES.values()} == set(METHOD_SETTINGS)


# What differs from CoT-BERT's published run.
DIFFERENT = {
    "promptbert-base": {"method.denoise": "position", "templates.negative": None},
    "promptbert-supervised": {
        "batch_size": 512,
        "epochs": 3,
        "optimizer.learning_rate": 5e-5,
        "method.head": "transform",
    },
    "promptroberta-base": {
        "templates.anchor": "promptroberta/released/anchor",
        "templates.positive": "promptroberta/released/positive",
        "method.pad_positions": "released",
    },
    "promptroberta-supervised": {
        "batch_size": 512,
        "method.head": "tanh",
        "templates.anchor": "promptroberta/released/anchor",
        "method.pad_positions": "released",
    },
    "optiprompt-base": {
        "epochs": 5,
        "eval_every": 1000,
        "optimizer.learning_rate": 3e-5,
        "templates.anchor": "promptbert/manual",
    },
    "denosent-base": {
        "batch_size": 64,
        "max_length": 30,
        "method.inference": "released",
        "max_steps": 5000,
        "eval_every": 50,
        "dev": "sts-b+sick-r",
        "optimizer.learning_rate": 4e-5,
        "optimizer.warmup_steps": 500,
        "optimizer.schedule": "constant",
        "method.contrastive_weight": 5.0,
        "method.generative_weight": 7.0,
        "method.temperature": 0.05,
        "method.dropout": 0.825,
        "method.layers": 16,
        "method.heads": 1,
        "method.target": "augmented",
    },
    "denosent-paper": {
        "method.contrastive_weight": 1.0,
        "method.generative_weight": 1.0,
        "method.temperature": 0.03,
        "optimizer.learning_rate": 5e-5,
        "templates.anchor": "denosent/paper",
    },
    "simcse-base": {"batch_size": 64, "optimizer.learning_rate": 3e-5, "method.readout": "cls"},
    "pcl-base": {"batch_size": 64, "optimizer.learning_rate": 3e-5, "method.copies": 2},
    "sncse-base": {
        "batch_size": 256,
        "max_length": 22,
        "optimizer.learning_rate": 1e-5,
        "method.margin_weight": 1e-3,
        "templates.anchor": "promptbert/positive",
        "templates.positive": "promptbert/anchor",
    },
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_recipes_have_their_papers_settings(name):
    made = flatten(settings(recipe=name))
    assert {key: made[key] for key in DIFFERENT[name]} == DIFFERENT[name]


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("optimizer.learning_rate=3e-5", "optimizer.learning_rate", 3e-5),
        ("optimizer.learning_rate=3.0e-5", "optimizer.learning_rate", 3e-5),
        ("dropout=null", "dropout", None),
        ("dropout=0", "dropout", 0.0),
        ("max_steps=50", "max_steps", 50),
        ("method.freeze_bias=true", "method.freeze_bias", True),
        ("method.denoise=none", "method.denoise", "none"),
        ("encoder=/a folder/with=blanks", "encoder", "/a folder/with=blanks"),
        *(
            (f"templates.anchor={text}", "templates.anchor", text)
            for text in (
                'This sentence of "[X]" means [MASK] .',
                '"[X]" means [MASK].',
                "[X] means [MASK].",
                "' [X] ' means <mask> .",
                "It says: this [X] means [MASK]",
                "Sentence #1 [X] means [MASK]",
            )
        ),
    ],
)
def test_set_reads_values_as_they_are_meant(text, path, value):
    # A method with one template: its masks need not agree with another's.
    recipe = "optiprompt-base" if path.startswith("templates") else "cot-bert-base"
    assert flatten(settings(text, recipe=recipe))[path] == value


def test_a_template_may_be_left_out_with_null():
    assert settings("templates.negative=null", "method.extended=false").templates.negative is None


def test_a_config_file_has_the_settings_shape(tmp_path):
    path = yaml_file(
        tmp_path,
        "batch_size: 64\noptimizer:\n  learning_rate: 3e-5\n  clip: 2\nmethod.temperature: 0.1\n",
    )
    made = settings(config=path)
    assert (made.batch_size, made.method.temperature) == (64, 0.1)
    assert (made.optimizer.learning_rate, made.optimizer.clip) == (3e-5, 2.0)
    assert made.max_length == 32


def test_recipe_then_config_then_set_then_flags(tmp_path):
    path = yaml_file(tmp_path, "seed: 1\nepochs: 1\nencoder: of-config\nbatch_size: 128\n")
    made = settings("seed=2", "encoder=of-set", "seed=3", config=path, encoder="of-flag")
    assert (made.seed, made.encoder, made.batch_size) == (3, "of-flag", 128)
    assert made.eval_every == RECIPES["cot-bert-base"]().eval_every
    assert settings("encoder=of-set", workers=2).encoder == "of-set"


def test_common_settings_have_options_of_their_own():
    given = {"max_steps": 7, "batch_size": 32, "learning_rate": 2e-5}
    options = CorpusOptions(corpus="a", assignments=("max_steps=9", "seed=4"), **given)
    made, recipe = options.settings("cot-bert-base"), RECIPES["cot-bert-base"]()
    assert (made.max_steps, made.batch_size, made.optimizer.learning_rate) == (7, 32, 2e-5)
    assert (made.seed, made.workers) == (4, recipe.workers)
    assert options.changed == {"max_steps", "batch_size", "optimizer.learning_rate", "seed"}


@pytest.mark.parametrize(("device", "gpus"), [("cpu", 0), ("gpu", 1), (None, None)])
def test_the_device_is_an_option(device, gpus):
    options = CorpusOptions(corpus="a", device=device)
    assert options.settings("cot-bert-base").gpus_per_worker == gpus
    assert options.changed == (set() if device is None else {"gpus_per_worker"})


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        (["seed"], "'seed' is not an assignment"),
        (["=3"], "'=3' is not an assignment"),
        (["learning_rate=1"], "'learning_rate' is unknown"),
        (["method.x.y=1"], "'method.x' is unknown"),
        (["method.temperature.x=1"], "temperature has no settings below it"),
        (["method.temperature=cold"], "method.temperature is 'cold'"),
        (["batch_size=[1]"], r"batch_size is '\[1\]'"),
    ],
)
def test_faults_are_reported(assignments, message):
    with pytest.raises(UserError, match=message):
        settings(*assignments)


@pytest.mark.parametrize(
    ("text", "message"),
    [(None, "cannot be read"), ("a: [1\nb", "cannot be read"), ("- a\n", "holds no settings")],
)
def test_a_bad_config_file_is_reported(tmp_path, text, message):
    path = tmp_path / "none.yaml" if text is None else yaml_file(tmp_path, text)
    with pytest.raises(UserError, match=message):
        settings(config=path)


def test_the_command_lists_recipes_and_prints_one(capsys):
    assert main(["recipes"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(RECIPES)
    assert main(["recipes", "quickstart"]) == 0
    shown = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    expected = flatten(RECIPES["quickstart"]())
    assert {key: json.loads(value) for key, value in shown.items()} == expected


def test_former_names_of_settings_work_in_files_and_assignments(tmp_path, capfd):
    _warn_once.cache_clear()
    made = settings("shuffle_rows=512", config=yaml_file(tmp_path, "chunk_size: 64"))
    assert (made.mini_batch_size, made.shuffle_buffer_rows) == (64, 512)
    stderr = capfd.readouterr().err
    assert "warning: setting 'chunk_size' is now called 'mini_batch_size'" in stderr
    assert "warning: setting 'shuffle_rows' is now called 'shuffle_buffer_rows'" in stderr
    again = settings("mini_batch_size=32", config=yaml_file(tmp_path, "chunk_size: 64"))
    assert again.mini_batch_size == 32, "--set comes after the file"
    assert changed_paths(None, ["chunk_size=64"]) == {"mini_batch_size"}
    with pytest.raises(UserError, match="'chunk_size' is the former name of 'mini_batch_size'"):
        settings("chunk_size=64", "mini_batch_size=32")
