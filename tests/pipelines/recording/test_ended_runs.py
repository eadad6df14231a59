"""When the MLflow runs of jobs end: before their output is finished, and with discarded work."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from cotbert_core.errors import UserError
from pipelines.adapting import adapt
from pipelines.adapting.options import AdaptOptions
from pipelines.embedding.embed import embed
from pipelines.embedding.options import EmbedOptions
from pipelines.preparing.options import PrepareOptions
from pipelines.preparing.prepare import prepare
from pipelines.recording.tracking import EXPERIMENT, resumable_run, tracked_run
from pipelines.storage.resumable_output import ResumableOutput
from pipelines.tuning import tune
from pipelines.tuning.options import TuneOptions
from tune_spaces import open_space

JOBS = {
    "embed": (embed, lambda text, model: EmbedOptions(model, (text,), precision="fp32")),
    "prepare": (prepare, lambda text, model: PrepareOptions((text,), model)),
}


@pytest.mark.parametrize("job", JOBS)
def test_a_job_is_finished_when_its_run_has_ended(
    tmp_path, own_store, bert_folder, written_states, job
):
    """Killed before, it continues and ends its own run."""
    run, options = JOBS[job]
    (tmp_path / "a.txt").write_text("one dog\ntwo dogs\nA man is playing the guitar\n")
    states = written_states(own_store)
    result = run(options(str(tmp_path / "a.txt"), bert_folder), tmp_path / "out")
    assert states == ["FINISHED"]
    assert result["mlflow_run_id"]


def adaptation(encoder, output):
    options = AdaptOptions(("a.txt",), encoder)
    return adapt._Job(options, output, None, (), adapt.MODEL_ALONE)


def test_an_adaptation_is_finished_when_its_run_has_ended(
    tmp_path, own_store, bert_folder, monkeypatch, written_states
):
    states = written_states(own_store)
    monkeypatch.setattr(adapt, "ray_session", lambda *given: nullcontext())
    monkeypatch.setattr(adapt, "_run", lambda *given: {})
    monkeypatch.setattr(adapt, "_log_result", lambda *given: None)
    adapt._tracked(adaptation(bert_folder, tmp_path), None, timed=True)
    assert (tmp_path / "result.json").is_file()
    assert states == ["FINISHED"]


def lost_child(store, parent):
    """The id of a run below this one whose process died."""
    experiment = store.get_experiment_by_name(EXPERIMENT).experiment_id
    return store.create_run(experiment, tags={"mlflow.parentRunId": parent}).info.run_id


def test_the_runs_of_trials_whose_process_died_are_ended(
    tmp_path, own_store, bert_folder, monkeypatch
):
    lost = []

    def failed_adaptation(job, run):
        lost.append(lost_child(own_store, run.id))
        return {"trials": [{"status": "failed"}]}

    def failed_sweep(options, plan, output, run_id, *more):
        lost.append(lost_child(own_store, run_id))
        return {"failed": 1, "best": {"name": "0000"}}

    for job in (adapt, tune):
        monkeypatch.setattr(job, "ray_session", lambda *given: nullcontext())
    for name in ("_params", "baselines", "_run_trials", "log_result"):
        monkeypatch.setattr(tune, name, lambda *given: {})
    monkeypatch.setattr(adapt, "_run", failed_adaptation)
    monkeypatch.setattr(adapt, "_log_result", lambda *given: None)
    monkeypatch.setattr(tune, "sweep_result", failed_sweep)
    (tmp_path / "adapt").mkdir()
    adapt._tracked(adaptation(bert_folder, tmp_path / "adapt"), None, timed=True)
    (tmp_path / "tune").mkdir()
    plan = SimpleNamespace(trials={}, total=0, possible=[])
    corpus = SimpleNamespace(path=tmp_path, digest="d")
    monkeypatch.setattr(tune.tracking.Run, "dataset", lambda run, corpus: None)
    options = TuneOptions(open_space("temperature"))
    job = tune._Job(options, plan, corpus, {}, tmp_path / "tune", tune.MODEL_ALONE)
    tune._tracked(job)
    assert [own_store.get_run(run).info.status for run in lost] == ["KILLED", "KILLED"]


def test_the_result_is_sent_after_the_end_of_the_run(tmp_path, own_store):
    """Also after an end that took long, whose pause no later record would end."""
    home = tmp_path / "out"
    home.mkdir()
    with tracked_run("compare", {}, home=home) as run:
        pass
    run._uploads._next = float("inf")
    run.write_result(home, {})
    assert own_store.get_run(run.id).info.status == "FINISHED"
    assert [item.path for item in own_store.list_artifacts(run.id)] == ["result.json"]
    assert sorted(path.name for path in home.iterdir()) == ["mlflow_run_id", "result.json"]


@pytest.mark.parametrize("output", ["out", "other/../out", "link/out"])
@pytest.mark.parametrize("name", ["mlflow.db", "deep/mlflow.db?timeout=5"])
def test_a_store_in_an_output_whose_place_the_finished_folder_takes_is_refused(
    tmp_path, bert_folder, monkeypatch, name, output
):
    (tmp_path / "a.txt").write_text("one dog\n")
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/out/{name}")
    with pytest.raises(UserError, match=r"is in the output .*: give another output, or a store"):
        prepare(PrepareOptions((str(tmp_path / "a.txt"),), bert_folder), tmp_path / output)
    assert {path.name for path in tmp_path.iterdir()} == {"a.txt", "other", "link"}


def test_the_run_of_discarded_work_is_ended(tmp_path, own_store):
    experiment = own_store.create_experiment(EXPERIMENT)
    lost = own_store.create_run(experiment).info.run_id
    home = tmp_path / "out.partial" / "record"
    work = ResumableOutput(home / "output", home / "scratch", False, (lost,))
    work.output.mkdir(parents=True)
    work.scratch.mkdir()
    with resumable_run(work, "prepare", {}, "Prepares.") as run:
        assert own_store.get_run(lost).info.status == "KILLED"
        assert own_store.get_run(run.id).info.status == "RUNNING"
