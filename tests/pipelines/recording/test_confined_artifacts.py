"""A queue from elsewhere: only what lies in its job's folder is sent to MLflow."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from pipelines.cli import main
from pipelines.reading.data_folder import REFUSED_FILE, UNTRACKED_FILE
from pipelines.recording.artifacts import foreign_files
from pipelines.recording.offline_queue import OfflineQueue
from pipelines.recording.tracking import tracked_run

SECRET = "the user's private key"


@pytest.fixture
def outside(tmp_path):
    (tmp_path / "home" / ".ssh").mkdir(parents=True)
    (tmp_path / "home" / "id_rsa").write_text(SECRET)
    (tmp_path / "home" / ".ssh" / "config").write_text(SECRET)
    return tmp_path / "home"


@pytest.fixture
def run_id(own_store):
    """A run in the store."""
    with tracked_run("train", {}) as run:
        pass
    return run.id


@pytest.fixture
def folder(tmp_path):
    """The run's job's folder, with a model."""
    for name in ("report.html", "model/weights", "model/deep/file"):
        file = tmp_path / "runs" / "job" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    return tmp_path / "runs" / "job"


def queue(folder, run_id, *paths):
    box = OfflineQueue(folder)
    for path in paths:
        box.add({"kind": "artifact", "run": run_id, "time": 1, "path": str(path)})


@pytest.fixture
def sent(own_store, run_id, tmp_path):
    """Path to text of all that the store holds of the run."""
    copies = tmp_path / "copies"
    copies.mkdir()

    def texts(at=""):
        found = {}
        for item in own_store.list_artifacts(run_id, at):
            if item.is_dir:
                found |= texts(item.path)
            else:
                copy = own_store.download_artifacts(run_id, item.path, str(copies))
                found[item.path] = Path(copy).read_text()
        return found

    return texts


@pytest.fixture
def sync(capsys):
    """Send a folder's queue: sent, refused and waiting, and what was said."""

    def run(folder):
        assert main(["track-sync", str(folder)]) == 0
        out, message = capsys.readouterr()
        return [int(count) for count in out.splitlines()[-1].split()[-3:]], message

    return run


def test_what_lies_outside_of_the_folder_is_refused_counted_and_named(
    folder, run_id, outside, sent, sync
):
    (folder / "link").symlink_to(outside / "id_rsa")
    (folder / "linked-folder").symlink_to(outside)
    (folder / "chain").symlink_to("link")
    os.mkfifo(folder / "pipe")
    refused = [outside / "id_rsa", "../../home/id_rsa", "model/../../../home/id_rsa", "link"]
    refused += ["chain", "linked-folder", "linked-folder/.ssh", "/etc/hostname", "../.."]
    refused += ["pipe", "gone"]
    queue(folder, run_id, *refused, "report.html", folder / "model/weights")
    counts, message = sync(folder)
    assert counts == [2, len(refused), 0]
    assert message.count("is outside the job's folder") == 5, "the first five are named"
    assert f"6 more: see {folder / REFUSED_FILE}" in message
    aside = [json.loads(line) for line in (folder / REFUSED_FILE).open()]
    assert [record["path"] for record in aside] == [str(path) for path in refused]
    assert all(record["path"] in record["refused"] for record in aside[3:])
    assert sent() == {"report.html": "report.html", "weights": "model/weights"}


def test_of_a_folder_the_links_out_of_it_are_left_out(folder, run_id, outside, sent, sync):
    (folder / "model" / "key").symlink_to(outside / "id_rsa")
    (folder / "model" / "deep" / "ssh").symlink_to(outside / ".ssh")
    (folder / "model" / "report").symlink_to("../report.html")
    (folder / "other").mkdir()
    (folder / "other" / "key").symlink_to(outside / "id_rsa")
    (folder / "model" / "other").symlink_to("../other")
    os.mkfifo(folder / "model" / "pipe")
    queue(folder, run_id, "model")
    counts, message = sync(folder)
    assert counts == [0, 1, 0]
    left_out = [folder / "model" / name for name in ("deep/ssh", "key", "other", "pipe")]
    assert f"4 paths in {folder / 'model'} lead outside" in message
    assert message.rstrip().endswith(", ".join(map(str, left_out)))
    own = {f"model/{name}": f"model/{name}" for name in ("weights", "deep/file")}
    assert sent() == {**own, "model/report": "report.html"}


def test_a_folder_of_its_own_files_is_sent_whole_also_after_a_move(
    folder, run_id, tmp_path, sent, sync
):
    queue(folder, run_id, "model", folder / "report.html")
    moved = shutil.copytree(folder, tmp_path / "elsewhere" / "job")
    (tmp_path / "through").symlink_to(folder.parent)
    whole = {f"model/{name}": f"model/{name}" for name in ("weights", "deep/file")}
    counts, _ = sync(moved)
    assert counts == [1, 1, 0], "the absolute path is of a folder that is another now"
    assert sent() == whole
    counts, message = sync(tmp_path / "through" / "job")
    assert counts == [2, 0, 0]
    assert "warning" not in message
    assert sent() == {**whole, "report.html": "report.html"}
    assert foreign_files(folder / "model", folder) == []


@pytest.mark.parametrize(
    "name",
    [
        *("untracked_refused.jsonl", "untracked_run.json.partial", "mlflow_run_id.partial"),
        *("result.json", UNTRACKED_FILE),
    ],
)
def test_a_file_that_sending_would_write_through_a_link_is_refused(name, folder, outside, capsys):
    queue(folder, "0" * 32, "$(touch owned)")
    victim = outside / "bashrc"
    if name == UNTRACKED_FILE:
        (folder / name).rename(victim)
    else:
        victim.write_text("mine\n")
    before = victim.read_bytes()
    (folder / name).symlink_to(victim)
    for asked in (folder, folder.parent):
        assert main(["track-sync", str(asked)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert f"{str(folder / name)!r} is a link to" in line
    assert victim.read_bytes() == before


def test_a_job_without_a_queue_sends_files_of_any_place(outside, own_store):
    """evaluate and geometry write where the user says; the path is their own."""
    with tracked_run("evaluate", {}) as run:
        run.artifact(outside / "id_rsa")
    assert [item.path for item in own_store.list_artifacts(run.id)] == ["id_rsa"]
