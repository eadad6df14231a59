"""The output folder of a sweep."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from test_tune import data, small

from cotbert_core.errors import UserError
from cotbert_core.evaluation.pairs import Pairs
from cotbert_core.files import output_path, read_json, write_json
from pipelines.training.inputs import encoder_digest
from pipelines.tuning import tune
from pipelines.tuning.options import TuneOptions
from pipelines.tuning.sweep_folder import lacks_registration, open_sweep, record_of
from pipelines.tuning.trial_plan import sampled_plan
from tune_spaces import open_space


def test_another_sweep_is_not_written_over(rates_corpus, bert_folder, rates, tmp_path, capsys):
    base = small(bert_folder)
    corpus, dev = data(base, rates_corpus)
    options = TuneOptions(open_space(str(rates)), "quickstart")
    plan = sampled_plan(options.space, base, None, (0,), 0)
    record = record_of(options, plan, corpus, dev)
    output = open_sweep(tmp_path / "out", record, discard=False)
    (output / "trials").mkdir()
    assert open_sweep(output, record, discard=False) == output
    assert {trial["dev"] for trial in record["trials"].values()} == {"built-in pairs"}
    assert record["encoder_digest"] == encoder_digest([base])
    # As an earlier version recorded it: the pairs called after the setting.
    write_json(output / "settings.json", record | plan.record)
    assert read_json(output / "settings.json")["trials"]["0000"]["dev"] == "sts-b"
    assert open_sweep(output, record, discard=False) == output
    write_json(output / "settings.json", record)
    write_json(output / "result.json", {"failed": 1, "unfinished": 0})
    assert open_sweep(output, record, discard=False) == output
    write_json(output / "result.json", {"failed": 0, "unfinished": 0})
    with pytest.raises(UserError, match=r"sweep in .* is finished: give a new folder, or --disc"):
        open_sweep(output, record, discard=False)
    (output / "result.json").unlink()
    optuna = record | {"search": "optuna", "trials": 15}
    with pytest.raises(UserError, match="with 3 trainings and has 15 trials by optuna now"):
        open_sweep(output, optuna, discard=False)
    longer = sampled_plan(options.space, base, None, (0, 1), 0)
    trials, more = len(plan.trials), len(longer.trials)
    with pytest.raises(UserError, match=f"with {trials} trainings and has {more} trainings now"):
        open_sweep(output, record_of(options, longer, corpus, dev), discard=False)
    ((name, pairs),) = dev.items()
    fewer = {name: Pairs(pairs.left[:-1], pairs.right[:-1], pairs.gold[:-1])}
    other = {**record_of(options, plan, corpus, fewer), "stopping": {"grace": 1, "factor": 3}}
    message = r"other settings \(.*\): give the same settings or a new folder, or --discard"
    with pytest.raises(UserError, match=message):
        open_sweep(output, other, discard=False)
    assert (output / "trials").is_dir()
    (tmp_path / "link").symlink_to(output)
    open_sweep(output_path(tmp_path / "link"), other, discard=True)
    assert (tmp_path / "link" / "settings.json").is_file()
    assert not (output / "trials").exists()
    assert read_json(output / "settings.json") == other
    assert "discarding the sweep in" in capsys.readouterr().err


def test_a_sweep_whose_deletion_was_interrupted_is_not_continued(tmp_path, monkeypatch):
    record, other = {"space": "rates", "trials": 1}, {"space": "rates", "trials": 2}
    output = open_sweep(tmp_path / "out", record, discard=False)
    (output / "trials").mkdir()

    def killed(folder):
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        open_sweep(output, other, discard=True)
    with pytest.raises(UserError, match="already holds something: give a new folder"):
        open_sweep(output, record, discard=False)


@pytest.mark.parametrize("finished", [True, False])
def test_another_jobs_folder_is_never_discarded(tmp_path, finished):
    write_json(tmp_path / "settings.json", {"encoder": "e", "method": {"name": "simcse"}})
    (tmp_path / "model").mkdir()
    if finished:
        write_json(tmp_path / "result.json", {"dev_spearman": 1.0})
    with pytest.raises(UserError, match="holds the files of another job: give a new folder"):
        open_sweep(tmp_path, {"space": "rates"}, discard=True)
    assert (tmp_path / "model").is_dir()


@pytest.mark.parametrize(
    ("result", "lacks"),
    [
        ({"best": {"name": "0001"}, "failed": 0, "unfinished": 0, "registered": None}, True),
        ({"best": {"name": "0001"}, "failed": 0, "unfinished": 0}, True),
        ({"best": {"name": "0001"}, "failed": 1, "unfinished": 0}, False),
        ({"best": None, "failed": 0, "unfinished": 0}, False),
        ({"best": {"name": "0001"}, "failed": 0, "registered": "models:/a/1"}, False),
        ({"dev_spearman": 70.0}, False),
        (None, False),
    ],
)
def test_a_finished_sweep_is_only_registered_if_it_is_not_yet(tmp_path, result, lacks):
    """The last two are of another job, and of a sweep that runs."""
    if result is not None:
        write_json(tmp_path / "result.json", result)
    assert lacks_registration(tmp_path) is lacks


@pytest.mark.parametrize("address", ["models:/a/1", None])
def test_a_later_registration_is_in_mlflows_copy_of_the_result(
    tmp_path, own_store, monkeypatch, address
):
    run = own_store.create_run(own_store.create_experiment("cotbert")).info.run_id
    write_json(tmp_path / "result.json", {"mlflow_parent_run_id": run, "registered": None})
    monkeypatch.setattr(tune, "register_best", lambda *given: address)
    tune._registered("a", {}, tmp_path)
    assert read_json(tmp_path / "result.json")["registered"] == address
    files = [item.path for item in own_store.list_artifacts(run)]
    assert files == (["result.json"] if address else []), "the store is not asked in vain"
    if address:
        copy = own_store.download_artifacts(run, "result.json")
        assert read_json(Path(copy))["registered"] == address
