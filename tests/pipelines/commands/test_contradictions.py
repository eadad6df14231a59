"""Values that are given twice, or that have no effect, are refused or named."""

from __future__ import annotations

import pytest
from tiny_corpus import write_corpus
from trainings import training

from cotbert_core.errors import UserError
from cotbert_core.settings import TrainSettings
from pipelines.cli import main
from pipelines.comparing.entries import Comparison
from pipelines.tuning.options import TuneOptions

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
    (found,) = (
        a.seeds if isinstance(a, (Comparison, TuneOptions)) else (a.seed,)
        for a in arguments
        if isinstance(a, (Comparison, TuneOptions))
        or (isinstance(a, TrainSettings) and not isinstance(arguments[0], TuneOptions))
    )
    return found


@pytest.mark.parametrize("command", JOBS)
def test_a_seed_that_is_set_is_used_and_none_is_given_twice(run, command):
    assert seeds(run(command)[0]) == (0,)
    assert seeds(run(command, "--set", "seed=5")[0]) == (5,)
    found, said = run(command, "--set", "seed=5", "--seeds", "2")
    assert found == []
    assert "seeds is '0,1' and --set or --config gives seed 5 too: leave one of them out" in said


@pytest.mark.parametrize(
    "flags", [("--set", "method.temperature=0.1"), ("--set", "method.temperature=0.02")]
)
def test_a_setting_that_a_space_varies_is_refused(run, flags):
    found, said = run("tune", *flags)
    assert found == []
    assert "method.temperature is given, by --set, --config or its own option, and space" in said
    assert run("tune", "--learning-rate", "1e-5")[0] != []


def test_dev_pairs_without_their_folder_are_named(run):
    warning = "warning: dev=sts-b+sick-r has no effect without --senteval"
    assert warning in run("train", "--set", "dev=sts-b+sick-r")[1]
    assert "has no effect" not in run("train")[1]


@pytest.mark.parametrize(
    ("address", "refused"),
    [
        ("runs", "a folder, to which MLflow writes no longer: give a database, such as sqlite:///"),
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
