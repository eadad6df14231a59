"""cotbert prepare ended on the way, by a real kill of driver and worker too, and run again."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cotbert_core.files import read_json
from pipelines import prepare as prepare_job
from pipelines import prepare_stages
from pipelines.corpus import Corpus
from pipelines.prepare import PrepareOptions, prepare

SHARDS, ROWS = 40, 4000


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """SHARDS files of ROWS lines, a third of them in other files too, some of them empty."""
    draw = random.Random(0)
    home = tmp_path_factory.mktemp("texts")
    for number in range(SHARDS):
        lines = [
            "" if draw.random() < 0.01 else f"{draw.randrange(250_000)} dogs saw a man in 2019"
            for _ in range(ROWS)
        ]
        (home / f"{number:02}.txt").write_text("\n".join(lines))
    return home


def content(folder):
    """Every part by its name, and the manifest."""
    parts = {p.name: p.read_bytes() for p in sorted(folder.glob("part-*"))}
    return parts, (folder / "manifest.json").read_bytes()


def start(texts, encoder, output):
    command = Path(sys.executable).with_name("cotbert")
    words = ("prepare", "--input", str(texts), "--output", str(output), "--encoder", encoder)
    return subprocess.Popen([command, *words], stderr=subprocess.PIPE, text=True)


def done(output, pattern):
    return len(list(output.with_name(output.name + ".partial").glob(f"*/scratch/{pattern}")))


class TooLateError(Exception):
    """The job was at its end before it was killed. In some runs it always is; why is not known."""


def wait_for(count, pattern, output, process):
    """Until so many shards or parts are done."""
    limit = time.monotonic() + 120
    while done(output, pattern) < count:
        if process.poll() is not None:
            told = process.stderr.read()
            assert process.returncode == 0, told
            raise TooLateError(told)
        assert time.monotonic() < limit
        time.sleep(0.002)


def kill(process):
    process.send_signal(signal.SIGKILL)
    told = process.stderr.read()
    process.wait()
    return told


def kill_a_worker(process):
    """One that is at work; Ray's own actors, without which no job goes on, have other names."""
    limit = time.monotonic() + 30
    while not (workers := workers_of(process)):
        assert time.monotonic() < limit, "no worker was there to be killed"
        time.sleep(0.002)
    os.kill(workers[0], signal.SIGKILL)


def workers_of(process):
    """Ray's processes below this one that read shards."""
    parents, found = {}, []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = status.read_text().partition(" (")[2].rpartition(") ")
        except OSError:
            continue
        parents[int(status.parent.name)] = int(rest.split()[1]), name
    for pid, (parent, name) in parents.items():
        above = parent
        while above in parents and above != process.pid:
            above = parents[above][0]
        if above == process.pid and name.startswith("ray::ReadRange"):
            found.append(pid)
    return found


@pytest.mark.ray_local
@pytest.mark.skipif(
    "COTBERT_KILL_TESTS" not in os.environ,
    reason="passes in some runs only, the cause not known: set COTBERT_KILL_TESTS=1",
)
@pytest.mark.usefixtures("ray_here")
def test_a_corpus_is_the_same_after_any_kill(texts, tmp_path, bert_folder, capsys, own_store):
    output, quiet = tmp_path / "killed", tmp_path / "quiet"
    prepare(PrepareOptions((str(texts),), bert_folder), quiet)
    for attempt in range(4):
        try:
            parts = kill_twice(texts, output, bert_folder, random.Random(attempt))
            break
        except TooLateError:
            assert attempt < 3
            shutil.rmtree(output)
    assert 0 < parts < len(list(quiet.glob("part-*")))

    capsys.readouterr()
    result = prepare(PrepareOptions((str(texts),), bert_folder), output)
    told = capsys.readouterr().err
    assert f"{SHARDS} of {SHARDS} shards and {parts} parts are there" in told
    assert content(output) == content(quiet)
    undisturbed = read_json(quiet / "result.json")
    own = [k for k in result if k not in ("seconds", "sentences_per_second", "mlflow_run_id")]
    assert {k: result[k] for k in own} == {k: undisturbed[k] for k in own}
    assert sorted(p.name for p in tmp_path.glob("killed*")) == ["killed"]
    # What was killed twice was one run of MLflow, which has ended well.
    runs = own_store.search_runs([own_store.get_experiment_by_name("cotbert").experiment_id])
    assert len(runs) == attempt + 2
    assert {run.info.status for run in runs} == {"FINISHED"}


def kill_twice(texts, output, bert_folder, draw):
    """A driver, then a worker and the driver again; how many parts are done then."""
    # The driver, while shards are read.
    process = start(texts, bert_folder, output)
    wait_for(draw.randrange(1, SHARDS // 2), "[0-9]*.json", output, process)
    kill(process)
    shards = done(output, "[0-9]*.json")
    assert 0 < shards < SHARDS
    assert not output.exists()

    # A worker while the rest is read, which its driver survives; the driver while it writes parts.
    process = start(texts, bert_folder, output)
    wait_for(shards + 2, "[0-9]*.json", output, process)
    kill_a_worker(process)
    wait_for(draw.randrange(1, 4), "part-*.json", output, process)
    told = kill(process)
    assert f"going on with {output}.partial: {shards} of {SHARDS} shards are there\n" in told
    return done(output, "part-*.json")


class StoppedError(Exception):
    pass


def stop(*arguments):
    raise StoppedError


@pytest.mark.usefixtures("without_ray")
def test_what_is_done_is_not_done_again(texts, tmp_path, bert_folder, monkeypatch):
    few = 8
    options = PrepareOptions((str(texts / "0[0-7].txt"),), bert_folder, sample=20_000)
    prepare(options, tmp_path / "whole")
    asked, map_shards = [], prepare_stages.map_shards

    def counted(task, count):
        asked.append(count)
        return map_shards(task, count)

    monkeypatch.setattr(prepare_stages, "map_shards", counted)
    for place, name in ((prepare_stages, "write_parts"), (prepare_job, "_manifest")):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, stop)
            with pytest.raises(StoppedError):
                prepare(options, tmp_path / "again")
    # The rows were chosen before the first stop, and for good.
    monkeypatch.setattr(prepare_stages.duplicates, "mark_first", stop)
    prepare(options, tmp_path / "again")
    assert asked == [few, 0, len(list((tmp_path / "whole").glob("part-*"))), 0, 0]
    assert content(tmp_path / "again") == content(tmp_path / "whole")


@pytest.mark.usefixtures("without_ray")
def test_other_input_begins_anew(texts, tmp_path, bert_folder, monkeypatch, capsys):
    path = tmp_path / "a.txt"
    path.write_text("one dog\ntwo dogs\n")
    out = tmp_path / "corpus"
    with monkeypatch.context() as patch:
        patch.setattr(prepare_stages, "write_parts", stop)
        with pytest.raises(StoppedError):
            prepare(PrepareOptions((str(path),), bert_folder), out)
    path.write_text("three dogs\nfour dogs\n")
    prepare(PrepareOptions((str(path),), bert_folder), out)
    assert f"discarding {out}.partial, which a job with other files" in capsys.readouterr().err
    assert list(Corpus.open(out).texts().values()) == ["three dogs", "four dogs"]


@pytest.mark.usefixtures("without_ray")
def test_a_job_that_was_killed_before_its_folder_had_its_name_is_finished(
    texts, tmp_path, bert_folder, monkeypatch
):
    out = tmp_path / "corpus"
    options = PrepareOptions((str(texts / "00.txt"),), bert_folder)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", stop)
        with pytest.raises(StoppedError):
            prepare(options, out)
    assert not out.exists()
    monkeypatch.setattr(prepare_job, "_run", stop)
    result = prepare(options, out)
    assert result == read_json(out / "result.json")
    assert len(Corpus.open(out).texts()) == result["rows"] > 1000
    assert not Path(f"{out}.partial").exists()
