"""A full disk is one sentence: where, how much is free and how to continue; exit status 1."""

from __future__ import annotations

import errno
import json
import os
import pickle
import re
import sqlite3
import tempfile
from argparse import Namespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from ray.exceptions import RayTaskError
from ray.train import ControllerError
from ray.train.v2.api.exceptions import WorkerGroupError
from small_disk import mounted

from cotbert_core.training.checkpoints import write_checkpoint
from pipelines.cli import main
from pipelines.embedding.options import VECTOR_COLUMN
from pipelines.preparing import duplicates
from pipelines.storage.disk_full import chain, disk_full, file_system
from pipelines.training.fitting import TrainingError

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
SENTENCE = re.compile(
    r"no space left on the disk of '(?P<place>[^']+)' \((?P<system>[^)]+)\): "
    r"[\d.]+ (bytes|[KMGT]iB) of [\d.]+ (bytes|[KMGT]iB) are free now"
    r"( that what was half written is deleted)?(, and more is needed)?; free some space there, "
    r"then (?P<next>.+)"
)


@pytest.fixture
def disk(tmp_path):
    with mounted(tmp_path / "disk", "1m") as place:
        yield place


def caused(outer: Exception, cause: Exception, how: str = "from") -> Exception:
    """`outer` as it is when raised from `cause`, or while that is handled."""
    setattr(outer, "__cause__" if how == "from" else "__context__", cause)
    return outer


def of_task(cause: Exception) -> Exception:
    """As Ray hands a task's error to the driver, over the wire."""
    return pickle.loads(pickle.dumps(RayTaskError("write_part", "Traceback ...", cause)))


ERRORS = {
    "the system's": FULL,
    "a quota": OSError(errno.EDQUOT, "Disk quota exceeded"),
    "a cause": caused(RuntimeError("part 3"), FULL),
    "a context": caused(RuntimeError("part 3"), FULL, "while"),
    "a group": ExceptionGroup("two", [ValueError("x"), caused(RuntimeError("y"), FULL)]),
    "torch's archive": RuntimeError(
        "[enforce fail at inline_container.cc:664] . unexpected pos 704 vs 598"
    ),
    "SQLite": sqlite3.OperationalError("database or disk is full"),
    "pyarrow": pa.ArrowIOError("Error writing bytes to file. Detail: No space left on device"),
    "OpenVINO": RuntimeError("basic_ios::clear: iostream error"),
    "safetensors": RuntimeError("I/O error: No space left on device (os error 28)"),
    "a task of Ray": of_task(FULL),
    "a task within a task": of_task(of_task(FULL)),
    "a task as its cause": of_task(FULL).as_instanceof_cause(),
    "a worker of a training": caused(
        TrainingError("worker 1"),
        WorkerGroupError("one failed", {0: ValueError("x"), 1: of_task(FULL)}),
    ),
    "the controller of a training": ControllerError(caused(RuntimeError("x"), FULL)),
}


@pytest.mark.parametrize("error", ERRORS.values(), ids=list(ERRORS))
def test_a_full_disk_is_found_in_every_error(error, tmp_path):
    message = disk_full(error, Namespace(output=tmp_path / "out"))
    assert message is not None
    assert (found := SENTENCE.fullmatch(message)), message
    assert found["next"] == "give the same command again"


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EACCES, "Permission denied"),
        RuntimeError("the loss is nan at position 3"),
        of_task(ValueError("bad row")),
        caused(RuntimeError("x"), OSError(errno.EIO, "Input/output error")),
    ],
)
def test_other_errors_are_none(error, tmp_path):
    assert disk_full(error, Namespace(output=tmp_path / "out")) is None


def test_a_chain_that_leads_back_to_itself_ends():
    one, other = RuntimeError("one"), RuntimeError("other")
    one.__cause__, other.__context__ = other, one
    assert set(chain(one)) == {one, other}


def test_the_place_and_the_next_step_are_those_of_the_job(disk):
    named = OSError(errno.ENOSPC, "No space left on device", str(disk / "out" / "part-0"))
    output = disk / "out"
    for error, arguments in ((named, Namespace()), (FULL, Namespace(output=output))):
        found = SENTENCE.fullmatch(disk_full(error, arguments) or "")
        assert found["place"].startswith(str(disk))
        assert found["system"] == f"tmpfs at {disk}" == file_system(disk)
        assert "1.0 MiB of 1.0 MiB are free now, and more is needed; free" in found[0]
    with (disk / "others").open("wb") as others:
        os.posix_fallocate(others.fileno(), 0, 1 << 20)
    found = disk_full(FULL, Namespace(output=output)) or ""
    assert "0 bytes of 1.0 MiB are free now; free" in found
    (disk / "others").unlink()
    (disk / "out.partial").mkdir()
    assert "give the same command again to continue" in (
        disk_full(FULL, Namespace(output=output)) or ""
    )
    output.mkdir()
    (output / "settings.json").write_text("{}")
    (disk / "out.partial").rmdir()
    # Of a sweep that has ended; the same command repeats trials that failed or did not end.
    for result in (None, {"failed": 2}, {"failed": 0, "unfinished": 1}, {"failed": 0}):
        if result is not None:
            (output / "result.json").write_text(json.dumps(result))
        found = disk_full(FULL, Namespace(output=output)) or ""
        assert found.endswith("again to continue") == (result != {"failed": 0})


def test_torchs_error_of_a_checkpoint_keeps_its_number_and_what_was_deleted(disk):
    state = {"weights": torch.zeros(1 << 20)}
    with pytest.raises(OSError, match="cannot be written") as error:
        write_checkpoint(disk / "checkpoints", 5, 1.0, state)
    assert error.value.errno == errno.ENOSPC
    failed = caused(TrainingError("worker 0"), WorkerGroupError("x", {0: of_task(error.value)}))
    found = SENTENCE.fullmatch(disk_full(failed, Namespace(output=disk)) or "")
    assert found["place"] == str(disk / "checkpoints" / "step-00000005")
    assert "1.0 MiB of 1.0 MiB are free now that what was half written is deleted" in found[0]


def test_a_map_of_rows_without_room_is_an_error_and_not_a_dead_process(disk):
    with pytest.raises(OSError, match="No space left"):
        duplicates.create(disk / "keep", 4 << 20)
    assert len(duplicates.create(disk / "small", 1000)) == 1000


@pytest.mark.parametrize(
    ("command", "size", "left"),
    [
        ("export MODEL --format folder --output", 65_536, set()),
        ("index vectors --format faiss --output", 262_144, set()),
        ("evaluate MODEL --precision fp32 --output", 4096, {"others", "out.partial"}),
    ],
)
def test_commands_say_so(tmp_path, bert_folder, capsys, unrecorded, command, size, left):
    if command.startswith("index"):
        pytest.importorskip("faiss")
        write_vectors(tmp_path / "vectors")
    with mounted(tmp_path / "small", str(size)) as place:
        if size == 4096:
            (place / "others").write_bytes(b"x" * size)
        words = command.replace("MODEL", bert_folder).split()
        assert main([*words, str(place / "out")]) == 1
        printed = capsys.readouterr()
        line = printed.err.strip().splitlines()[-1]
        assert SENTENCE.search(line)["next"] == "give the same command again"
        assert f"tmpfs at {place}" in line
        assert ("spearman" in printed.out) == command.startswith("evaluate")
        assert {path.name for path in place.iterdir()} == left


def test_the_full_disk_is_named_though_its_half_written_files_are_deleted(
    tmp_path, bert_folder, capsys, unrecorded, monkeypatch
):
    """After that another disk may have less free space than it."""
    with (
        mounted(tmp_path / "small", "64k") as place,
        mounted(tmp_path / "temporary", "32k") as temporary,
    ):
        monkeypatch.setattr(tempfile, "tempdir", str(temporary))
        words = ["export", bert_folder, "--format", "folder", "--output", str(place / "out")]
        assert main(words) == 1
        line = capsys.readouterr().err.strip().splitlines()[-1]
        assert SENTENCE.search(line)["place"] == str(place)
        assert "64.0 KiB of 64.0 KiB are free now that what was half written is deleted" in line


def test_a_full_cache_is_named(disk, tmp_path, monkeypatch):
    monkeypatch.setenv("COTBERT_CACHE", str(disk / "cache"))
    found = SENTENCE.fullmatch(disk_full(FULL, Namespace(output=tmp_path / "out")) or "")
    assert found["place"] == str(disk)


def write_vectors(folder):
    """Embeddings of 5,000 rows."""
    vectors = np.random.default_rng(0).standard_normal((5000, 64)).astype(np.float32)
    (folder / "data").mkdir(parents=True)
    flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), 64)
    table = pa.table({"id": list(range(5000)), VECTOR_COLUMN: flat})
    pq.write_table(table, folder / "data" / "part-000000-000000.parquet")
    manifest = {"rows": 5000, "dimension": 64, "model": "a", "dtype": "float32"}
    (folder / "manifest.json").write_text(json.dumps(manifest))
