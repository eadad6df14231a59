"""Values that are given twice, or that have no effect, are refused or named."""

from __future__ import annotations

import itertools
import shlex

import pytest
from tiny_corpus import write_corpus
from trainings import training

from cotbert_core.errors import UserError
from cotbert_core.settings import TrainSettings, override
from pipelines.cli import main
from pipelines.comparing.entries import same_budget
from pipelines.recipes import RECIPES
from pipelines.tuning.trial_plan import check_effect
from tune_spaces import Space

JOBS = {
    "train": ("training.train.train", ("train", "simcse-base")),
    "compare": ("comparing.compare.compare", ("compare", "simcse-base")),
    "tune": ("tuning.tune.tune", ("tune", "temperature-grid", "--recipe", "simcse-base")),
}


@pytest.fixture
def run(tmp_path, bert_folder, monkeypatch, capsys):
    """Run a command as far as its job; what the job is given, or None, and what is said."""
    corpus = write_corpus(tmp_path / "corpus", bert_folder, ["One.", "Two."] * 40, max_length=16)

    def run(command, *flags):
        found = []

        def job(*arguments, **_):
            found.extend(arguments)
            raise UserError("captured")

        module, words = JOBS[command]
        monkeypatch.setattr(f"pipelines.{module}", job)
        line = training(bert_folder, corpus, tmp_path / "out", job=words, flags=flags)
        assert main(line) == 2
        return found, capsys.readouterr().err

    return run


def seeds(arguments):
    """Of a job of several runs, or of one, whose settings are its first argument."""
    first = arguments[0]
    return (first.seed,) if isinstance(first, TrainSettings) else first.seeds


@pytest.mark.parametrize("command", JOBS)
def test_a_seed_that_is_set_is_used_and_none_is_given_twice(run, command):
    assert seeds(run(command)[0]) == (0,)
    assert seeds(run(command, "--set", "seed=5")[0]) == (5,)
    found, said = run(command, "--set", "seed=5", "--seeds", "2")
    assert found == []
    assert "seeds is '0,1' and --set or --config gives seed 5 too: leave one of them out" in said


def test_a_setting_that_a_space_varies_is_refused(run, tmp_path):
    found, said = run("tune", "--set", "method.temperature=0.1")
    assert found == []
    assert "method.temperature is given, by --set, --config or its own option, and space" in said
    assert run("tune", "--learning-rate", "1e-5")[0] != []
    (tmp_path / "a.yaml").write_text("method: {temperature: 0.05}\nseed: 0\n")
    same = ("--config", tmp_path / "a.yaml", "--seeds", "2")  # as the recipe has it
    assert seeds(run("tune", *same)[0]) == (0, 1)


def test_settings_without_an_effect_are_named_or_refused(run, tmp_path):
    """In a run they are named, where another one differs by them alone they are refused."""
    warning = "warning: node_seconds is 9 and has no effect, because min_workers is null"
    assert warning in run("train", "--set", "node_seconds=9")[1]
    assert "no effect" not in run("train", "--set", "node_seconds=9", "--set", "min_workers=1")[1]
    # A file with all values of a recipe says nothing about them.
    (tmp_path / "a.yaml").write_text("node_seconds: 180\n")
    assert "no effect" not in run("train", "--config", tmp_path / "a.yaml")[1]


@pytest.mark.parametrize(
    ("settings", "given", "reason"),
    [
        ({"epochs": [1, 2]}, {"max_steps": 4}, "epochs, which has no effect, because max_steps is"),
        ({"dev": ["sts-b", "own"]}, {}, "because all trials are scored on the same dev sets"),
        ({"epochs": [1, 2], "max_steps": [None, 4]}, {}, None),
    ],
)
def test_a_space_of_equal_trials_is_refused(settings, given, reason):
    axes = {name: {"grid": values} for name, values in settings.items()}
    space = Space("mine", "Tries something.", "simcse-base", axes)
    base = override(TrainSettings(), given)
    possible = [
        override(base, dict(zip(settings, values, strict=True)))
        for values in itertools.product(*settings.values())
    ]
    if reason is None:
        check_effect(space, possible)
        return
    with pytest.raises(UserError, match=reason):
        check_effect(space, possible)


def test_an_entry_that_equals_another_is_refused():
    with pytest.raises(UserError, match=r"changes method\.layers, which has no effect, because"):
        same_budget(["documents", "documents,method.layers=4"], settings, set())
    two = ["documents", "documents,method.positive=paired"]
    assert len(same_budget(two, settings, set())) == 2


def settings(recipe):
    return RECIPES[recipe]()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("search E Q --encoding latin-1", "encoding is 'latin-1' and has no effect without --text"),
        ("search E Q --keyword-weight 2", "keyword_weight is 2.0 and has no effect without --key"),
        ("geometry M --sentences 9 --output O", "sentences is 9 and has no effect without --corp"),
        ("token-map E --text-column b --output O", "text_column is 'b' and has no effect without"),
        (
            "generate-templates T --definitions F --seed 3 --output O",
            "no effect without --examples",
        ),
        ("prepare --input P --encoder E --language-probability 0.9 --output O", "out --language"),
        ("augment --corpus P --method back-translation --seed 3 --output O", "without --temperat"),
        (
            "augment --corpus P --method back-translation --temperature 1 --beam 8 --output O",
            "beam is 8 and temperature is 1.0, which samples without a beam",
        ),
        ("evaluate M --encoding latin-1", "concerns the files of --labelled, --whiten, --rank and"),
        ("evaluate M --whiten tasks --text-column a", "text_column is 'a' and concerns the files"),
        ("evaluate M --senteval S --tasks mteb", "none of which is in that folder: leave --sent"),
        ("pretrain simcse-base --corpus P --output O", "pretraining needs a recipe of method mlm"),
        ("train documents --corpus P.txt --output O", "raw text ('P.txt') has none: prepare it"),
        ("train documents --corpus ../nothing --output O", "input '../nothing' does not exist"),
        ("compare simcse-base --corpus P --tasks STS-B --output O", "without a SentEval folder"),
    ],
)
def test_an_option_that_needs_another_is_refused(
    tmp_path, monkeypatch, bert_folder, capsys, words, message
):
    monkeypatch.chdir(tmp_path)
    for name in ("P", "P.txt", "F"):
        (tmp_path / name).write_text("one: two\n")
    assert main([bert_folder if word == "M" else word for word in shlex.split(words)]) == 2
    assert message in capsys.readouterr().err


def test_dev_pairs_without_their_folder_are_named(run):
    warning = "warning: dev=sts-b+sick-r has no effect without --senteval"
    assert warning in run("train", "--set", "dev=sts-b+sick-r")[1]
    assert "has no effect" not in run("train")[1]


@pytest.mark.parametrize(
    ("address", "refused"),
    [
        ("runs", "a folder, to which it writes no longer: give a database, such as sqlite:////"),
        ("my.db", "/my.db, or set MLFLOW_ALLOW_FILE_STORE=true"),
        ("file:///srv/runs", "such as sqlite:////srv/runs/mlflow.db, or set MLFLOW_ALLOW_FILE_"),
        ("bogus://u:secret@x", "'bogus://***@x', and MLflow has no store 'bogus': give the addr"),
        ("http://127.0.0.1:9", None),
        ("postgresql+psycopg2://u@h/d", None),
    ],
)
def test_a_store_to_which_mlflow_cannot_write_is_refused(run, monkeypatch, address, refused):
    """An address whose server is down is none of these: its records wait."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    found, said = run("train")
    assert (found == []) is (refused is not None)
    assert (refused or "captured") in said
    assert "secret" not in said
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    assert (run("train")[0] == []) is address.startswith("bogus")
