"""What waits for MLflow: its order, when it is tried again, and what repeating it changes."""

from __future__ import annotations

import errno
import json
from types import SimpleNamespace

import pytest
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE

from cotbert_core.files import read_json, write_json
from pipelines.reading.data_folder import REFUSED_FILE, UNTRACKED_FILE
from pipelines.recording import offline_queue, tracking, upload_worker
from pipelines.recording.offline_queue import OfflineQueue
from pipelines.recording.records import KEY_TAG, create_record
from pipelines.recording.tracking import Run, tracked_run
from pipelines.recording.upload_worker import PAUSE_SECONDS, UploadWorker
from pipelines.storage.output_folder import KEYS_FILE


class Fake:
    """An MLflow client that tells what it was called with, and fails while it is `down`."""

    def __init__(self):
        self.down, self.takes, self.tries, self.received = False, 0.0, 0, []
        self.clock, self.made = 0.0, {}

    def _call(self, *call):
        self.tries += 1
        self.clock += self.takes
        if self.down:
            raise OSError("connection refused")
        self.received.append(call)

    def log_batch(self, run_id, metrics=(), params=(), tags=()):
        if any(p.key == "changed" for p in params):
            raise MlflowException("was another value", error_code=INVALID_PARAMETER_VALUE)
        names = [f"{m.key}{m.step}" for m in metrics], [one.key for one in (*params, *tags)]
        self._call(run_id, *names[0], *names[1])

    def set_terminated(self, run_id, status, end_time):
        self._call(run_id, status)

    def update_run(self, run_id, status):
        self._call(run_id, status)

    def get_run(self, run_id):
        return SimpleNamespace(data=SimpleNamespace(tags={}))

    def get_experiment_by_name(self, name):
        self._call("experiment")
        return SimpleNamespace(experiment_id="1", lifecycle_stage="active")

    def search_runs(self, experiments, query, max_results):
        key = query.split("'")[1]
        found = [run for run, tags in self.made.items() if tags[KEY_TAG] == key]
        return [SimpleNamespace(info=SimpleNamespace(run_id=run)) for run in found]

    def create_run(self, experiment, start_time, run_name, tags):
        run = f"run{len(self.made)}"
        self._call(run, "made", run_name, start_time)
        self.made[run] = tags
        return SimpleNamespace(info=SimpleNamespace(run_id=run))


@pytest.fixture
def fake(monkeypatch):
    client = Fake()
    for module in (upload_worker, tracking):
        monkeypatch.setattr(module, "connect", lambda: client)
    return client


@pytest.fixture
def run(fake, tmp_path):
    """A run in the store, with a queue."""
    return Run(fake, "id", UploadWorker(OfflineQueue(tmp_path), fake, clock=lambda: fake.clock))


def waiting(folder, file=UNTRACKED_FILE):
    return [json.loads(line) for line in (folder / file).open()]


def kinds(folder):
    return [record["kind"] for record in waiting(folder)]


def params(run, **values):
    return {"kind": "params", "run": run, "time": 1, "values": values}


def test_what_the_store_takes_leaves_no_file(fake, run, tmp_path):
    run.params({"a": 1})
    run.metrics({"loss": 1.0}, step=3)
    run.end("FINISHED")
    assert fake.received == [("id", "a"), ("id", "loss3"), ("id", "FINISHED")]
    assert list(tmp_path.iterdir()) == []


def test_what_the_disk_has_no_room_for_is_sent_at_once(fake, run, tmp_path, monkeypatch, capsys):
    def full(path, record):
        path.write_bytes(b'{"kind": "par')  # what fitted
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(offline_queue, "_append", full)
    run.params({"a": 1})
    run.end("FAILED")
    assert fake.received == [("id", "a"), ("id", "FAILED")]
    assert (run.lost, capsys.readouterr().err) == (0, "")
    assert list(tmp_path.iterdir()) == [], "nothing waits"
    fake.down = True
    run.params({"b": 1})
    run.end("FAILED")
    assert run.lost == 2
    assert "2 records for MLflow are lost" in capsys.readouterr().err


def test_a_name_that_is_not_utf_8_loses_its_record_alone(fake, run, tmp_path, capsys):
    run.params({"corpus": "t\udce9xt"})
    run.params({"a": 1})
    assert (run.lost, fake.received) == (1, [("id", "a")])
    assert "cannot be written ('utf-8' codec can't encode" in capsys.readouterr().err


def test_what_waits_is_sent_first_and_in_order(fake, run, tmp_path):
    fake.down = True
    run.params({"a": 1})
    for step in (1, 2, 3):
        run.metrics({"loss": float(step)}, step)
    run.tags({"t": "x"})
    assert fake.received == []
    assert kinds(tmp_path) == ["params", "metrics", "metrics", "metrics", "tags"]
    fake.down, fake.clock = False, PAUSE_SECONDS
    run.metrics({"loss": 4.0}, 4)
    expected = [("id", "a"), ("id", "loss1", "loss2", "loss3"), ("id", "t"), ("id", "loss4")]
    assert fake.received == expected, "metrics that follow each other make one batch"
    assert not (tmp_path / UNTRACKED_FILE).exists()


def test_a_store_that_is_down_is_tried_every_ten_seconds_and_at_the_end(
    fake, run, tmp_path, capsys
):
    fake.down, tries = True, [0]
    for second in range(25):
        fake.clock = float(second)
        run.metrics({"loss": 1.0}, second)
        tries.append(fake.tries)
    assert [second for second in range(25) if tries[second + 1] > tries[second]] == [0, 10, 20]
    run.end("FINISHED")
    assert fake.tries == 4
    first, last = capsys.readouterr().err.splitlines()
    stored = f"(connection refused); {UNTRACKED_FILE} in the job's output stores the records until"
    assert stored in first
    assert OfflineQueue(tmp_path).waiting() == 26
    assert last.startswith("warning: records wait for MLflow: `")
    assert last.endswith(f"cotbert track-sync {tmp_path}` sends them")


def test_a_store_that_dies_before_the_result_is_tried_once(fake, run, tmp_path):
    run.end("FINISHED")
    before, fake.down = fake.tries, True
    fake.log_artifact = lambda run_id, path: fake._call(run_id, path)
    run.write_result(tmp_path, {})
    assert fake.tries - before == 1
    assert kinds(tmp_path) == ["artifact"]


def test_the_records_of_child_runs_are_among_those_that_wait(fake, run, tmp_path, capsys):
    """Their own warnings are in the logs of Ray's workers."""
    child = OfflineQueue(tmp_path / "trials" / "0000")
    for number in range(3):
        child.add({"kind": "tags", "run": "1", "time": 0, "values": {"t": str(number)}})
    run.end("FINISHED")
    said = capsys.readouterr().err
    assert said.startswith("warning: records wait for MLflow: `")
    assert said.endswith(f"cotbert track-sync {tmp_path}` sends them\n")


@pytest.mark.parametrize("down", [True, False])
def test_a_store_that_hangs_or_crawls_costs_a_tenth_of_the_time(fake, run, down):
    fake.down, fake.takes = down, 4.0
    while fake.clock < 1000:
        fake.clock += 1.0
        run.metrics({"loss": 1.0}, round(fake.clock))
    assert 1000 * 0.07 < fake.tries * 4.0 < 1000 * 0.1


@pytest.mark.parametrize("key", ["mlflow_run_id", "mlflow_parent_run_id"])
def test_a_result_gets_the_id_of_its_run(tmp_path, key):
    write_json(tmp_path / "result.json", {key: None, "best": 1})
    OfflineQueue(tmp_path).record_run_id("local-1", "run0")
    assert read_json(tmp_path / "result.json") == {key: "run0", "best": 1}


def test_a_kill_between_sending_and_removing_repeats_the_same_calls(fake, tmp_path):
    box, create = OfflineQueue(tmp_path), create_record("train")
    box.record_run_id(create["run"], None)
    box.add(create)
    box.add(params(create["run"], a="1"))
    before = (tmp_path / UNTRACKED_FILE).read_bytes()
    for _ in range(2):
        (tmp_path / UNTRACKED_FILE).write_bytes(before)
        while box.send_first(fake):
            pass
    assert list(fake.made) == ["run0"], "the run is found by its key"
    assert box.latest_run() == (create["run"], "run0")
    assert [call for call in fake.received if "a" in call] == [("run0", "a")] * 2


def test_a_half_written_line_of_a_killed_process_is_passed_over(fake, tmp_path):
    box = OfflineQueue(tmp_path)
    box.add(params("id", a="1"))
    with box.path.open("a") as file:
        file.write('{"kind": "par')
    box.add(params("id", b="1"))
    while box.send_first(fake):
        pass
    assert fake.received == [("id", "a"), ("id", "b")]
    assert box.empty


def test_what_the_store_refuses_is_put_aside_alone(fake, run, tmp_path, capsys):
    run.params({"a": 1, "changed": 2, "b": 3})
    run.artifact(tmp_path / "gone")
    run.metrics({"loss": float("nan")}, step=1)
    run.end("FINISHED", tmp_path / "final")  # the folder's path once the job is done
    assert fake.received == [("id", "a"), ("id", "b"), ("id", "loss1"), ("id", "FINISHED")]
    changed, gone = waiting(tmp_path, REFUSED_FILE)
    assert (changed["kind"], changed["values"]) == ("params", {"changed": "2"})
    assert changed["refused"].endswith("was another value")
    assert gone["kind"] == "artifact"
    stderr = capsys.readouterr().err
    assert stderr == f"warning: MLflow refused 2 records: {tmp_path / 'final' / REFUSED_FILE}\n"


def test_a_run_that_could_not_be_made_is_made_later_under_its_parent(tmp_path, fake):
    fake.down, below = True, tmp_path / "seed-0"
    with tracked_run("compare", {"a": 1}, queue_folder=tmp_path) as parent:
        parent_key = parent.key
        with tracked_run("train", {}, parent=parent_key, queue_folder=below) as c:
            (below / "mlflow_run_id").write_text(c.id or "")
            (below / "result.json").write_text('{"mlflow_run_id": null, "loss": 1}')
            assert (parent.id, c.id) == (None, None)
            fake.down = False
    assert (parent.id, c.id) == ("run0", "run1"), "the child's last call makes both"
    (key,) = OfflineQueue(below).keys()
    assert fake.made["run1"] == {KEY_TAG: key, "mlflow.parentRunId": "run0"}
    assert fake.made["run0"][KEY_TAG] == parent_key
    assert (below / "mlflow_run_id").read_text() == "run1"
    result = json.loads((below / "result.json").read_text())
    assert result == {"mlflow_run_id": "run1", "loss": 1}
    assert next(call[1] for call in fake.received if call[0] == "run0") == "made"
    assert fake.received[-1] == ("run0", "FINISHED")
    assert not list(tmp_path.rglob(UNTRACKED_FILE))


def test_a_resumed_run_continues_with_the_one_that_waits(tmp_path, fake):
    for fake.down in (True, True, False):
        with tracked_run("train", {"a": 1}, queue_folder=tmp_path) as run:
            pass
        if fake.down:
            found = kinds(tmp_path)
    assert (found.count("create"), found.count("reopen")) == (1, 1)
    assert (list(fake.made), run.id) == (["run0"], "run0")
    states = [call[1] for call in fake.received if call[-1] in ("RUNNING", "FINISHED")]
    assert states == ["FINISHED", "RUNNING", "FINISHED", "RUNNING", "FINISHED"]


def test_a_parent_that_no_folder_knows_is_left_out_with_a_warning(tmp_path, fake, capsys):
    fake.down = True
    with tracked_run("train", {}, parent="local-gone", queue_folder=tmp_path) as run:
        fake.down = False
    assert fake.made[run.id].keys() == {KEY_TAG}
    assert "was not found in the folders above" in capsys.readouterr().err
    assert (tmp_path / KEYS_FILE).is_file()
