"""When the MLflow runs of jobs end: before their output is finished, and with discarded work."""

from __future__ import annotations

import pytest

from cotbert_core.files import write_json
from pipelines.embedding.embed import embed
from pipelines.embedding.options import EmbedOptions
from pipelines.preparing.options import PrepareOptions
from pipelines.preparing.prepare import prepare
from pipelines.recording.tracking import EXPERIMENT, resumable_run
from pipelines.storage.resumable_output import ResumableOutput

JOBS = {
    "embed": (embed, lambda text, model: EmbedOptions(model, (text,), precision="fp32")),
    "prepare": (prepare, lambda text, model: PrepareOptions((text,), model)),
}


@pytest.mark.parametrize("job", JOBS)
def test_a_job_is_finished_when_its_run_has_ended(
    tmp_path, own_store, bert_folder, monkeypatch, job
):
    """Killed before, it continues and ends its own run."""
    run, options = JOBS[job]
    (tmp_path / "a.txt").write_text("one dog\ntwo dogs\nA man is playing the guitar\n")
    states = {}

    def noted(path, value):
        if path.name == "result.json":
            states[job] = own_store.get_run(value["mlflow_run_id"]).info.status
        write_json(path, value)

    monkeypatch.setattr(f"{run.__module__}.write_json", noted)
    result = run(options(str(tmp_path / "a.txt"), bert_folder), tmp_path / "out")
    assert states == {job: "FINISHED"}
    assert result["mlflow_run_id"]


def test_the_run_of_discarded_work_is_ended(tmp_path, own_store):
    experiment = own_store.create_experiment(EXPERIMENT)
    lost = own_store.create_run(experiment).info.run_id
    work = ResumableOutput(tmp_path / "out", tmp_path / "scratch", False, (lost,))
    work.output.mkdir()
    work.scratch.mkdir()
    with resumable_run(work, "prepare", {}, "Prepares.") as run:
        assert own_store.get_run(lost).info.status == "KILLED"
        assert own_store.get_run(run.id).info.status == "RUNNING"
