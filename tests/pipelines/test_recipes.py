"""Recipes: published numbers, and settings from file, --set and flags in that order."""

from __future__ import annotations

import json

import pytest

from cotbert_core.errors import UserError
from cotbert_core.method_settings import METHOD_SETTINGS
from cotbert_core.settings import TrainSettings, flatten, override
from pipelines.cli import main
from pipelines.commands.training import CorpusOptions
from pipelines.recipes import RECIPES, changed_paths, settings_for
from pipelines.runtime.progress import say_once

# What the papers publish, as assignments that change nothing of the recipe.
COT_BERT = (
    "batch_size=256 max_length=32 epochs=1 eval_every=125 method.name=cot-bert "
    "method.temperature=0.05 method.denoise=pad method.pad_positions=aligned method.extended=true "
    "optimizer.learning_rate=1e-5 optimizer.weight_decay=0 optimizer.clip=1 "
    "optimizer.warmup_steps=0 optimizer.schedule=linear"
)
PUBLISHED = {
    "cot-bert-base": f"{COT_BERT} encoder=bert-base-uncased templates.anchor=cot-bert/anchor "
    "templates.positive=cot-bert/positive templates.negative=cot-bert/negative",
    "cot-roberta-base": f"{COT_BERT} encoder=roberta-base "
    "templates.anchor=cot-roberta/released/anchor "
    "templates.positive=cot-roberta/released/positive "
    "templates.negative=cot-roberta/released/negative",
    "documents": "encoder=all-MiniLM-L6-v2 method.name=denosent method.objective=contrastive "
    "method.positive=rest method.readout=mean method.projected=false method.temperature=0.05 "
    "method.rest_length=128 optimizer.learning_rate=3e-5 batch_size=64 templates.anchor=null",
    "promptbert-base": "method.denoise=position templates.negative=null",
    "promptbert-supervised": "batch_size=512 epochs=3 optimizer.learning_rate=5e-5 "
    "method.head=transform",
    "promptroberta-base": "templates.anchor=promptroberta/released/anchor "
    "templates.positive=promptroberta/released/positive method.pad_positions=released",
    "promptroberta-supervised": "batch_size=512 method.head=tanh "
    "templates.anchor=promptroberta/released/anchor method.pad_positions=released",
    "optiprompt-base": "epochs=5 eval_every=1000 optimizer.learning_rate=3e-5 "
    "templates.anchor=promptbert/manual",
    "denosent-base": "batch_size=64 max_length=30 method.inference=released max_steps=5000 "
    "eval_every=50 dev=sts-b+sick-r optimizer.learning_rate=4e-5 optimizer.warmup_steps=500 "
    "optimizer.schedule=constant method.contrastive_weight=5 method.generative_weight=7 "
    "method.temperature=0.05 method.dropout=0.825 method.layers=16 method.heads=1 "
    "method.target=augmented",
    "denosent-paper": "method.contrastive_weight=1 method.generative_weight=1 dev=sts-b "
    "method.temperature=0.03 optimizer.learning_rate=5e-5 templates.anchor=denosent/paper",
    "simcse-base": "batch_size=64 optimizer.learning_rate=3e-5 method.readout=cls",
    "pcl-base": "batch_size=64 optimizer.learning_rate=3e-5 method.copies=2",
    "sncse-base": "batch_size=256 max_length=22 optimizer.learning_rate=1e-5 "
    "method.margin_weight=1e-3 templates.anchor=promptbert/positive "
    "templates.positive=promptbert/anchor",
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


@pytest.mark.parametrize("name", PUBLISHED)
def test_recipes_have_their_papers_settings(name):
    recipe = flatten(settings(recipe=name))
    assert flatten(settings(*PUBLISHED[name].split(), recipe=name)) == recipe
    assert flatten(settings("optimizer.clip=0.5", recipe=name)) != recipe


def test_the_recipe_of_documents_leaves_the_length_to_the_corpus():
    assert "max_length" not in settings(recipe="documents").model_fields_set


def test_every_method_has_a_recipe():
    assert {recipe().method.name for recipe in RECIPES.values()} == set(METHOD_SETTINGS)


@pytest.mark.parametrize(
    ("path", "text", "value"),
    [("optimizer.learning_rate", "3e-5", 3e-5), ("optimizer.learning_rate", "3.0e-5", 3e-5),
     ("dropout", "null", None), ("dropout", "0", 0.0), ("max_steps", "50", 50),
     ("method.freeze_bias", "true", True), ("method.denoise", "none", "none"),
     ("encoder", "/a folder/with=blanks", "/a folder/with=blanks")],
)  # fmt: skip
def test_set_reads_values_as_they_are_meant(path, text, value):
    assert flatten(settings(f"{path}={text}"))[path] == value


@pytest.mark.parametrize(
    "text",
    ['This sentence of "[X]" means [MASK] .', '"[X]" means [MASK].', "[X] means [MASK].",
     "' [X] ' means <mask> .", "It says: this [X] means [MASK]", "Sentence #1 [X] means [MASK]"],
)  # fmt: skip
def test_set_reads_templates_as_they_are_written(text):
    # A method with one template: its masks need not agree with another's.
    assert settings(f"templates.anchor={text}", recipe="optiprompt-base").templates.anchor == text


def test_a_template_may_be_left_out_with_null():
    assert settings("templates.negative=null", "method.extended=false").templates.negative is None


def test_a_config_file_has_the_settings_shape(tmp_path):
    nested = "optimizer: {learning_rate: 3e-5, clip: 2}"
    path = yaml_file(tmp_path, f"batch_size: 64\n{nested}\nmethod.temperature: 0.1\n")
    equal = ("optimizer.learning_rate=3e-5", "optimizer.clip=2", "method.temperature=0.1")
    assert settings(config=path) == settings("batch_size=64", *equal)


@pytest.mark.parametrize(
    ("setting", "text", "value"),
    [("max_length", "032", 32), ("encoder", "007", "007"), ("encoder", "2026-11-30", "2026-11-30"),
     ("seed", "1e3", 1000), ("optimizer.learning_rate", "3e-5", 3e-5), ("encoder", "1:30", "1:30")],
)  # fmt: skip
def test_a_value_means_the_same_in_a_config_file_and_after_set(tmp_path, setting, text, value):
    """YAML 1.1 takes 032 for 26, 1:30 for 90, 3e-5 for a text and has dates."""
    by_file = settings(config=yaml_file(tmp_path, f"{setting}: {text}\n"))
    assert by_file == settings(f"{setting}={text}")
    assert flatten(by_file)[setting] == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed: 1\nbatch_size: 8\nseed: 2\n", "YAML in line 3, column 1 .'seed' is there twice"),
        (
            "method:\n  length: 1\nmethod.length: 2\n",
            r"config '.*': setting 'method.length' is given twice, .*; give it",
        ),
        (None, r"config '.*none.yaml': it cannot be read \(No such file"),
        ("seed: [1\n", r"config '.*': it is not valid YAML in line 2, column 1 \(expected"),
        ("- seed\n", "it holds no settings; write `setting: value` lines"),
    ],
)
def test_a_config_file_that_is_not_clear_is_refused(tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        settings(config=tmp_path / "none.yaml" if text is None else yaml_file(tmp_path, text))


def test_recipe_then_config_then_set_then_flags(tmp_path):
    path = yaml_file(tmp_path, "seed: 1\nepochs: 1\nencoder: of-config\nbatch_size: 128\n")
    made = settings("seed=2", "encoder=of-set", "seed=3", config=path, encoder="of-flag")
    assert (made.seed, made.encoder, made.batch_size) == (3, "of-flag", 128)
    assert made.eval_every == RECIPES["cot-bert-base"]().eval_every
    assert settings("encoder=of-set", workers=2).encoder == "of-set"
    assert settings("encoder=20241127").encoder == "20241127"
    for name in ("007", "2026-11-30", "2026-11-31"):
        assert settings(f"encoder={name}").encoder == name
    assert settings("batch_size=064").batch_size == 64


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


def test_the_command_lists_recipes_and_prints_one(capsys):
    assert main(["recipes"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(RECIPES)
    assert main(["recipes", "quickstart"]) == 0
    shown = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    expected = flatten(RECIPES["quickstart"]())
    assert {key: json.loads(value) for key, value in shown.items()} == expected


def test_former_names_of_settings_work_in_files_and_assignments(tmp_path, capfd):
    say_once.cache_clear()
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
