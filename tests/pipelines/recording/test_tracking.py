"""MLflow: what a run holds, and that a store's failure is a warning and never a job's end."""

from __future__ import annotations

import fcntl
import os
import re
import socket
import sqlite3
import subprocess
from pathlib import Path

import pytest
import sqlalchemy

from pipelines.recording import mlflow_run, tracking
from pipelines.recording.artifacts import RefusedError
from pipelines.recording.store import connect, no_answer
from pipelines.recording.tracking import EXPERIMENT, Run, tracked_run
from pipelines.storage.output_folder import RUN_FILE


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(mlflow_run, "RETRY_SECONDS", 0)
    for name in ("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "MLFLOW_HTTP_REQUEST_TIMEOUT"):
        monkeypatch.setenv(name, os.environ.get(name, "2"))  # set back after the test
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR", "0")


class Breaking:
    """An MLflow client whose calls fail."""

    def __getattr__(self, name):
        def call(*args, **kwargs):
            raise OSError("no space\nleft")

        return call


def test_children_that_a_killed_process_left_running_are_ended(own_store):
    with tracked_run("adapt", {}) as parent:
        with tracked_run("evaluate", {}, parent=parent.id) as done:
            pass
        experiment = own_store.get_experiment_by_name(EXPERIMENT).experiment_id
        ids = {}
        for name, above in (("lost", parent.id), ("another's", done.id)):
            tags = {"mlflow.parentRunId": above}
            ids[name] = own_store.create_run(experiment, tags=tags).info.run_id
        tracking.end_lost_children(parent.id)
        states = {name: own_store.get_run(run).info.status for name, run in ids.items()}
        assert states == {"lost": "KILLED", "another's": "RUNNING"}
        assert own_store.get_run(done.id).info.status == "FINISHED"
        assert own_store.get_run(parent.id).info.status == "RUNNING"


def test_a_run_holds_params_metrics_by_step_tags_and_artifacts(own_store, tmp_path, capsys):
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "w").write_text("w")
    many = {f"p{n}": n for n in range(250)}
    with tracked_run("train", {"dropout": None, "long": "x" * 10_000, **many}) as run:
        run.metrics({"loss": 2.0, "rate": 5}, step=1)
        run.metrics({"loss": 1.0}, step=2)
        run.artifact(tmp_path / "a.txt")
        run.artifact(tmp_path / "model")
    found = own_store.get_run(run.id)
    assert own_store.get_experiment(found.info.experiment_id).name == EXPERIMENT
    assert (found.info.run_name, found.info.status) == ("train", "FINISHED")
    texts = {name: str(value) for name, value in many.items()}
    assert found.data.params == {"dropout": "None", "long": "x" * 6000, **texts}
    losses = own_store.get_metric_history(run.id, "loss")
    assert [(m.step, m.value) for m in losses] == [(1, 2.0), (2, 1.0)]
    assert found.data.metrics == {"loss": 1.0, "rate": 5.0}
    tags = {"job": "train", "commit": tracking.commit(), "mlflow.source.name": "cotbert train"}
    assert tags.items() <= found.data.tags.items()
    assert all(found.data.tags[f"version.{name}"] for name in tracking.VERSIONED)
    names = [a.path for folder in ("", "model") for a in own_store.list_artifacts(run.id, folder)]
    assert names == ["a.txt", "model", "model/w"]
    assert (tmp_path / "mlartifacts").is_dir()
    assert run.lost == 0
    assert capsys.readouterr() == ("", "")


def test_names_do_without_the_characters_that_mlflow_refuses(own_store, capsys):
    """Such as those of an entry of `compare`, of a registered model, or of a file of graded pairs.
    A name may also be of a template and too long."""
    with tracked_run("compare", {"pairs (1)": 5}) as run:
        run.metrics({"dev_spearman.simcse-base,method.temperature=0.1": 70.0, "loss": 1.0})
        run.metrics({f"average.difference/{300 * 'a'}": 2.0})
        run.metrics({"average.p/models:/mine@best [CLS]": 0.5})
        run.metrics({"average.p/a mean 'see http://a/../b/: [X]'": 0.25})
        run.tags({"best, by dev": "yes"})
    found = own_store.get_run(run.id).data
    assert found.params == {"pairs 1": "5"}
    long = f"average.difference/{231 * 'a'}"
    entry = "dev_spearman.simcse-base_method.temperature_0.1"
    of_model = "average.p/models:/mine_best CLS"
    of_text = "average.p/a mean _see http:/a/b/: X_"
    assert found.metrics == {entry: 70.0, "loss": 1.0, long: 2.0, of_model: 0.5, of_text: 0.25}
    assert found.tags["best_ by dev"] == "yes"
    assert capsys.readouterr().err == ""


def test_the_commit_is_that_of_a_checkout_of_this_package(tmp_path, monkeypatch):
    """In an environment inside the user's own repository it is not the user's commit."""

    def git(*words):
        who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        command = ["git", "-C", str(tmp_path), *who, *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    place = tmp_path / "pipelines" / "tracking.py"
    place.parent.mkdir()
    place.write_text("")
    monkeypatch.setattr(tracking, "__file__", str(place))
    git("init")
    git("commit", "--allow-empty", "-m", "their own")
    assert tracking.commit() == "released"
    git("add", "pipelines")
    git("commit", "-m", "a checkout")
    assert tracking.commit() == git("rev-parse", "--short=12", "HEAD")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert tracking.commit() == "released", "without the program git"


def test_one_process_at_a_time_makes_the_tables_of_a_database(empty_store, tmp_path, monkeypatch):
    def client(tracking_uri):
        folder = os.open(tmp_path, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(folder)
        Path(tracking_uri.removeprefix("sqlite:///")).touch()
        return tracking_uri

    monkeypatch.setattr("mlflow.MlflowClient", client)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/new.db")
    assert connect().endswith("new.db")


def test_a_kill_while_a_database_gets_its_tables_leaves_no_broken_one(
    empty_store, tmp_path, monkeypatch
):
    class Killed:
        def __init__(self, tracking_uri):
            path, _, _ = tracking_uri.removeprefix("sqlite:///").partition("?")
            with sqlite3.connect(path) as database:
                database.execute("CREATE TABLE _alembic_tmp_runs (a)")
            raise KeyboardInterrupt

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/new.db?timeout=9")
    with monkeypatch.context() as killed:
        killed.setattr("mlflow.MlflowClient", Killed)
        with pytest.raises(KeyboardInterrupt):
            connect()
    assert connect().get_experiment_by_name(EXPERIMENT) is None
    assert [path.name for path in tmp_path.iterdir()] == ["new.db"]


def test_the_store_may_be_named(empty_store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = tmp_path / "elsewhere.db"
    store.write_bytes(empty_store.read_bytes())
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{store}")
    before = store.stat().st_mtime_ns
    with tracked_run("prepare", {}):
        pass
    assert store.stat().st_mtime_ns > before
    assert not (tmp_path / "mlflow.db").exists()


@pytest.mark.parametrize("address", ["sqlite:///mlflow.db", "sqlite:///{}/mlflow.db"])
def test_the_default_store_has_its_files_beside_it_if_it_is_named_too(
    own_store, tmp_path, monkeypatch, address
):
    """As it is in a submitted job on this machine."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address.format(tmp_path))
    (tmp_path / "a.txt").write_text("a")
    with tracked_run("prepare", {}) as run:
        run.artifact(tmp_path / "a.txt")
    assert own_store.get_run(run.id).info.artifact_uri.startswith(f"file://{tmp_path}/mlartifacts/")
    assert not (tmp_path / "mlruns").exists()


@pytest.mark.parametrize(
    ("address", "absolute"),
    [
        ("sqlite:///mlflow.db", "sqlite:///{}/mlflow.db"),
        ("sqlite:////other/mlflow.db", "sqlite:////other/mlflow.db"),
        ("sqlite:///:memory:", "sqlite:///:memory:"),
        ("mlruns", "{}/mlruns"),
        ("file:./mlruns", "file:{}/mlruns"),
        ("file:///other", "file:///other"),
        ("http://there:5000", "http://there:5000"),
        ("databricks", "databricks"),
    ],
)
def test_a_relative_store_is_the_same_one_in_a_trials_folder(
    tmp_path, monkeypatch, address, absolute
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    assert tracking.tracking_uri() == absolute.format(tmp_path)


@pytest.mark.parametrize("name", ["what?", "50%20 off", "100% ü#&"])
def test_the_store_is_in_a_folder_of_any_name(empty_store, tmp_path, monkeypatch, name):
    (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / name)
    Path("mlflow.db").write_bytes(empty_store.read_bytes())
    before = Path("mlflow.db").stat().st_mtime_ns
    with tracked_run("prepare", {}):
        pass
    assert Path("mlflow.db").stat().st_mtime_ns > before


def test_a_deleted_experiment_is_a_warning_that_says_how_to_restore_it(own_store, capsys):
    number = own_store.create_experiment("cotbert")
    own_store.delete_experiment(number)
    with tracked_run("prepare", {}):
        pass
    restore = f"`mlflow experiments restore --experiment-id {number}` restores it"
    assert restore in capsys.readouterr().err


def test_a_run_is_shown_under_its_parent(own_store):
    with tracked_run("quickstart", {}) as outer, tracked_run("train", {}, parent=outer.id) as inner:
        pass
    parents = [own_store.get_run(r.id).data.tags.get("mlflow.parentRunId") for r in (inner, outer)]
    assert parents == [outer.id, None]


def failing_job(error, client=None):
    """A run whose job raises, after the store has broken if a client is given; its id."""
    runs = []

    def job():
        with tracked_run("train", {}) as run:
            runs.append(run.id)
            run._client = client or run._client
            raise error

    with pytest.raises(type(error)) as raised:
        job()
    assert raised.value is error
    return runs[0]


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (ValueError("x" * 900), "FAILED", "x" * 500),
        (RuntimeError(), "FAILED", "RuntimeError"),
        (KeyboardInterrupt("continue"), "KILLED", "interrupted"),
    ],
)
def test_a_run_whose_job_raises_says_so(own_store, error, status, text):
    found = own_store.get_run(failing_job(error))
    assert (found.info.status, found.data.tags["error"]) == (status, text)


def test_a_run_that_is_continued_has_no_error(own_store, tmp_path):
    with pytest.raises(KeyboardInterrupt), tracked_run("train", {}, home=tmp_path) as first:
        raise KeyboardInterrupt
    assert "error" in own_store.get_run(first.id).data.tags
    with tracked_run("train", {}, home=tmp_path) as again:
        assert "error" not in own_store.get_run(again.id).data.tags
    assert again.id == first.id


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        ("NewConnectionError(\"HTTPConnection(host='a', port=1): Failed to establish a new "
         "connection: [Errno 111] Connection refused\")", r"\[Errno 111\] Connection refused"),
        ("ReadTimeoutError(\"HTTPConnectionPool(host='a', port=1): Read timed out. (read "
         "timeout=10)\")", r"Read timed out\. \(read timeout=10\)"),
        ("SSLError(SSLError(1, '[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)'))",
         r"\[SSL: WRONG_VERSION_NUMBER\] wrong version number \(_ssl\.c:1006\)"),
        ("ResponseError('too many 500 error responses')", "too many 500 error responses"),
    ],
)  # fmt: skip
def test_a_connections_cause_is_named(cause, text):
    url = "/api/2.0/mlflow/runs/log-batch" * 9
    error = OSError(f"HTTPConnectionPool: Max retries exceeded with url: {url} (Caused by {cause})")
    assert re.fullmatch(rf"MLflow at sqlite:.* did not answer \({text}\)", no_answer(error))


def test_a_user_without_rights_is_told_so(monkeypatch):
    error = OSError("API request failed with error code 401 != 200. Response body: 'You are not'")
    assert "does not admit this user: check MLFLOW_TRACKING_USERNAME" in no_answer(error)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:wrong@host")
    said = "MLflow at http://***@host does not admit this user: check the user and password in"
    assert no_answer(error).startswith(said)


def test_a_database_that_cannot_be_written_is_one_sentence(own_store, tmp_path, capfd):
    with tracked_run("train", {}) as run:
        engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'mlflow.db'}")
        with engine.begin() as connection:
            connection.exec_driver_sql("DROP TABLE params")
        run.params({"a": 1})
    printed = capfd.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines()[-1] == "warning: 2 records for MLflow are lost"
    assert "Traceback" not in printed.err
    assert "ERROR" not in printed.err


def test_the_jobs_own_error_is_raised_though_the_store_is_broken(own_store, capsys):
    failing_job(ValueError("the job's own"), Breaking())
    assert "2 records for MLflow are lost" in capsys.readouterr().err


def test_an_unreachable_server_is_a_warning(monkeypatch, capsys):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        uri = f"http://127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    tries, connect = [], tracking.connect
    monkeypatch.setattr(tracking, "connect", lambda: tries.append(1) or connect())
    with tracked_run("train", {"a": 1}) as run:
        run.metrics({"loss": 1.0})
        run.artifact(Path(__file__))
    assert (run.id, run.lost) == (None, 0)
    assert len(tries) == mlflow_run.RETRIES, "the run's beginning is tried again, nothing else"
    line, last = capsys.readouterr().err.splitlines()
    assert line.startswith(f"warning: MLflow at {uri} did not answer (")
    assert last == "warning: MLflow has no record of this job"


@pytest.mark.parametrize(
    "uri", ["sqlite:///{}/file/below/a.db", "sqlite:///{}", "nonsense:{}", "file:{}/runs"]
)
def test_a_store_that_cannot_be_opened_is_a_warning(uri, tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri.format(tmp_path))
    with tracked_run("train", {}) as run:
        run.metrics({"loss": 1.0})
    assert run.id is None
    line, last = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: MLflow at ")
    assert last == "warning: MLflow has no record of this job"


def test_a_store_that_breaks_half_way_is_a_warning_with_a_count(own_store, tmp_path, capsys):
    with tracked_run("train", {"a": 1}) as run:
        run.metrics({"loss": 1.0}, step=1)
        run._client = Breaking()
        run.metrics({"loss": 0.5}, step=2)
        run.artifact(tmp_path)
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == "warning: 3 records for MLflow are lost"
    assert all(line.startswith("warning: MLflow at sqlite:///") for line in lines[:-1])
    assert len(own_store.get_metric_history(run.id, "loss")) == 1


class Busy:
    """An MLflow client whose first calls fail, with this error."""

    def __init__(self, failures, error=OSError):
        self.failures, self.error, self.tries = failures, error, 0

    def log_batch(self, *args, **kwargs):
        self.tries += 1
        if self.tries <= self.failures:
            raise self.error("busy")

    def set_terminated(self, *args, **kwargs):
        self.log_batch()


def test_a_call_is_tried_again_before_it_is_lost(capsys):
    client = Busy(1)
    run = Run(client, "id")
    run.metrics({"loss": 1.0})
    assert (client.tries, run.lost) == (2, 0)
    assert capsys.readouterr().err == ""


def test_after_a_failed_call_the_next_ones_wait_for_nothing(monkeypatch):
    client, clock = Busy(mlflow_run.RETRIES), [1000.0]
    monkeypatch.setattr(mlflow_run.time, "monotonic", lambda: clock[0])
    run = Run(client, "id")
    for seconds, tries, lost in ((0, 3, 1), (30, 3, 2), (59, 3, 3), (61, 4, 3), (62, 5, 3)):
        clock[0] = 1000 + seconds
        run.metrics({"loss": 1.0})
        assert (client.tries, run.lost) == (tries, lost), seconds
    client.tries = 0
    run.metrics({"loss": 1.0})
    run.end("FINISHED")
    assert (client.tries, run.lost) == (4, 4), "the end is sent even during a pause"


def test_a_refused_record_loses_no_other_one(capsys):
    client = Busy(1, RefusedError)
    run = Run(client, "id")
    for _ in range(2):
        run.metrics({"loss": 1.0})
    assert (client.tries, run.lost) == (2, 1)
    assert capsys.readouterr().err == "warning: MLflow refused a record (busy)\n"


def test_a_creation_whose_answer_is_lost_makes_no_second_run(own_store, monkeypatch):
    lost = [OSError("timed out")]

    class Slow(type(own_store)):
        def create_run(self, *args, **kwargs):
            run = super().create_run(*args, **kwargs)
            if lost:
                raise lost.pop()
            return run

    monkeypatch.setattr(tracking, "connect", lambda: Slow(own_store.tracking_uri))
    with tracked_run("evaluate", {}) as run:
        pass
    (only,) = own_store.search_runs([own_store.get_run(run.id).info.experiment_id])
    assert only.info.run_id == run.id


def test_a_run_continues_under_its_id_and_again_in_a_store_that_does_not_know_it(
    own_store, tmp_path, capsys
):
    with tracked_run("train", {"seed": 1}, home=tmp_path) as first:
        first.metrics({"loss": 2.0}, step=1)
    assert (tmp_path / RUN_FILE).read_text() == first.id
    with tracked_run("train", {"seed": 1}, home=tmp_path) as again:
        again.metrics({"loss": 1.0}, step=2)
    (tmp_path / RUN_FILE).write_text("0" * 32)
    with tracked_run("train", {"seed": 1}, home=tmp_path) as other:
        pass
    note = f"lacks the run {'0' * 32} of this job, which continues in a new one"
    assert note in capsys.readouterr().err
    own_store.delete_run(other.id)
    with tracked_run("train", {"seed": 1}, home=tmp_path) as after_deletion:
        pass
    assert again.id == first.id
    assert other.id not in (first.id, "0" * 32)
    found = own_store.get_run(after_deletion.id)
    assert found.info.lifecycle_stage == "active"
    assert found.data.params == {"seed": "1", "output": str(tmp_path)}
    assert [m.step for m in own_store.get_metric_history(first.id, "loss")] == [1, 2]
