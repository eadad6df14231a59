"""cotbert track-sync against a real MLflow server that is killed or absent."""

from __future__ import annotations

import json
import socket
import time

import pytest
from trainings import result_of, training

from pipelines.cli import main
from pipelines.reading.data_folder import UNTRACKED_FILE
from pipelines.recording import upload_worker
from pipelines.recording.offline_queue import OfflineQueue
from pipelines.recording.records import create_record
from pipelines.recording.tracking import tracked_run

STEPS = 40


def job(folder, *, parent=None, at_steps=None):
    """A job with all that one tells; a function may be called before a step."""
    folder.mkdir(parents=True, exist_ok=True)
    params, name = {f"p{n}": n for n in range(150)}, folder.name
    with tracked_run("train", params, name=name, parent=parent, queue_folder=folder) as run:
        (folder / "mlflow_run_id").write_text(run.id or "")
        for step in range(STEPS):
            (at_steps or {}).get(step, lambda: None)()
            run.metrics({"loss": 1 / (step + 1), "rate": float(step)}, step)
        run.tags({"notes": "n"})
        for name in ("report.html", "model/weights", "model/deep/file"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(name)
        run.artifact(folder / "report.html")
        run.artifact(folder / "model")
        (folder / "result.json").write_text(json.dumps({"mlflow_run_id": run.id}))
    return run


@pytest.fixture
def find(server_client):
    """The runs that a query finds."""

    def search(query):
        experiment = server_client.get_experiment_by_name("cotbert").experiment_id
        return server_client.search_runs([experiment], query)

    return search


@pytest.fixture
def check_whole(server_client, find):
    """Check that MLflow holds all of a job, each thing once; the run."""

    def check(folder, parent=None):
        (found,) = find(f"attributes.run_name = '{folder.name}'")
        run_id, run = found.info.run_id, server_client.get_run(found.info.run_id)
        assert run.data.params == {f"p{n}": str(n) for n in range(150)}
        for key, value in (("loss", lambda s: 1 / (s + 1)), ("rate", float)):
            stored = [(m.step, m.value) for m in server_client.get_metric_history(run_id, key)]
            assert sorted(stored) == [(step, value(step)) for step in range(STEPS)]
        assert run.data.tags.items() >= {"job": "train", "notes": "n"}.items()
        assert run.data.tags.get("mlflow.parentRunId") == parent
        assert run.info.status == "FINISHED"
        folders = ("", "model", "model/deep")
        paths = [a.path for at in folders for a in server_client.list_artifacts(run_id, at)]
        model = ["model", "model/deep", "model/deep/file", "model/weights"]
        assert sorted(paths) == [*model, "report.html"]
        assert (folder / "mlflow_run_id").read_text() == run_id
        assert result_of(folder)["mlflow_run_id"] == run_id
        return run

    return check


@pytest.mark.real
def test_a_server_killed_in_the_middle_of_a_run_misses_nothing(
    server, server_client, find, check_whole, tmp_path, capsys
):
    folder = tmp_path / "killed" / "seed-0"
    with tracked_run("train-seeds", {}, queue_folder=folder.parent) as outer:
        job(folder, parent=outer.key, at_steps={STEPS // 2: server.kill})
    waiting = OfflineQueue(folder).waiting()
    assert waiting >= STEPS // 2
    said = capsys.readouterr().err
    assert "warning: records wait for MLflow: `" in said
    assert f"cotbert track-sync {folder}` sends them" in said
    assert main(["track-sync", str(folder.parent)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"cotbert: the job failed: MLflow at {server.uri} did not answer (")
    assert OfflineQueue(folder).waiting() == waiting

    server.start()
    again = (folder / UNTRACKED_FILE).read_bytes()
    assert main(["track-sync", str(folder.parent)]) == 0
    (child,) = find(f"tags.`mlflow.parentRunId` = '{outer.id}'")
    row = capsys.readouterr().out.splitlines()[-1]
    assert row.split() == ["seed-0", child.info.run_id, str(waiting), "0", "0"]
    check_whole(folder, outer.id)
    assert server_client.get_run(outer.id).info.status == "FINISHED"

    # As after a kill between sending and removing: all is sent again, and nothing changes.
    (folder / UNTRACKED_FILE).write_bytes(again)
    assert main(["track-sync", str(folder)]) == 0
    check_whole(folder, outer.id)
    assert main(["track-sync", str(folder.parent)]) == 2
    assert "nothing waits for MLflow in" in capsys.readouterr().err


@pytest.mark.real
def test_runs_that_began_without_a_server_are_made_with_their_own_times(
    server, find, check_whole, tmp_path
):
    server.kill()
    began, above = int(time.time() * 1000), tmp_path / "absent"  # MLflow keeps whole milliseconds
    with tracked_run("compare", {}, name="absent", queue_folder=above) as outer:
        child = job(above / "entry" / "seed-7", parent=outer.key)
    ended = int(time.time() * 1000) + 1
    assert (outer.id, child.id) == (None, None)
    server.start()
    # Of the child alone: its parent, above the folder, is made since the child needs it.
    assert main(["track-sync", str(above / "entry")]) == 0
    (parent,) = find("attributes.run_name = 'absent'")
    run = check_whole(above / "entry" / "seed-7", parent.info.run_id)
    assert began <= run.info.start_time <= run.info.end_time <= ended
    assert began <= parent.info.start_time <= run.info.start_time
    assert parent.info.status == "RUNNING"
    assert main(["track-sync", str(tmp_path)]) == 0
    (parent,) = find("attributes.run_name = 'absent'")
    assert parent.info.status == "FINISHED"
    assert not list(tmp_path.rglob(UNTRACKED_FILE))


@pytest.mark.real
def test_a_server_that_comes_back_gets_all_without_a_command(
    server, check_whole, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(upload_worker, "PAUSE_SECONDS", 0.0)
    job(tmp_path / "back", at_steps={10: server.kill, 20: server.start})
    check_whole(tmp_path / "back")
    assert not (tmp_path / "back" / UNTRACKED_FILE).exists()
    assert "did not answer" in capsys.readouterr().err


@pytest.mark.real
def test_another_store_than_the_runs_gets_nothing(server, tmp_path, capsys):
    box, later = OfflineQueue(tmp_path / "job"), OfflineQueue(tmp_path / "later")
    box.add({"kind": "params", "run": "0" * 32, "time": 1, "values": {"a": "1"}})
    later.add(create_record("train"))
    assert main(["track-sync", str(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert "set MLFLOW_TRACKING_URI to the store where they began" in captured.err
    assert [line.split()[0] for line in captured.out.splitlines()[2:]] == ["job", "later"]
    assert (box.waiting(), later.waiting()) == (1, 0)


def test_refused_records_do_not_count_as_sent(own_store, tmp_path, capsys):
    with tracked_run("train", {}) as run:
        pass
    box = OfflineQueue(tmp_path)
    box.add({"kind": "tags", "run": run.id, "time": 1, "values": {"a": "1"}})
    box.add({"kind": "params", "run": run.id, "time": 1, "values": dict.fromkeys("/.", "1")})
    for step in range(3):
        box.add({"kind": "metrics", "run": run.id, "time": 1, "rows": [["/", 1.0, 1, step]]})
    assert main(["track-sync", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split() == [".", run.id, "1", "3", "0"]


@pytest.mark.ray_local
@pytest.mark.usefixtures("ray_here", "own_cache")
def test_jobs_without_a_server_finish_and_are_sent_later(
    own_store, bert_folder, tmp_path, monkeypatch, capsys
):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{free.getsockname()[1]}")
    text, corpus, runs = tmp_path / "text.txt", tmp_path / "done" / "corpus", tmp_path / "done/runs"
    text.write_text("\n".join(f"{who} walks {n} miles" for who in "abc" for n in range(4)))
    prepare = ["prepare", "--input", str(text), "--encoder", bert_folder, "--output", str(corpus)]
    sets = ("batch_size=4", "max_steps=2", "eval_every=1", "workers=1", "precision=fp32")
    train = training(bert_folder, corpus, runs, *sets, flags=["--seeds", "2", "--log-model"])
    assert (main(prepare), main(train)) == (0, 0)
    stderr = capsys.readouterr().err
    folders = [corpus, runs, runs / "seed-0", runs / "seed-1"]
    assert [stderr.count(f"cotbert track-sync {folder}` sends") for folder in folders] == [1] * 4

    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert main(["track-sync", str(tmp_path / "done")]) == 0
    ids = [result_of(folder)["mlflow_run_id"] for folder in folders]
    found = [own_store.get_run(run_id) for run_id in ids]
    names = ["prepare / corpus", "train-seeds / runs", "quickstart seed 0", "quickstart seed 1"]
    assert [run.info.run_name for run in found] == names
    assert {run.info.status for run in found} == {"FINISHED"}
    parents = [run.data.tags.get("mlflow.parentRunId") for run in found]
    assert parents == [None, None, ids[1], ids[1]]
    for run in found[2:]:
        assert [m.step for m in own_store.get_metric_history(run.info.run_id, "loss")] == [1, 2]
        (model,) = run.outputs.model_outputs
        (metric,) = own_store.get_logged_model(model.model_id).metrics
        assert metric.key == "dev_spearman"
        assert len(run.inputs.dataset_inputs) == 1
        assert "model" in [a.path for a in own_store.list_artifacts(run.info.run_id)]
    assert "manifest.json" in [a.path for a in own_store.list_artifacts(ids[0])]
    assert len(own_store.search_runs([found[0].info.experiment_id])) == 4
