"""cotbert prepare ended on the way, by a real kill of driver and worker too, and run again."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
from forked import Command
from process_tree import below

from cotbert_core.files import read_json
from pipelines import prepare as prepare_job
from pipelines.prepare import prepare
from pipelines.preparing import driver
from pipelines.preparing.options import PrepareOptions
from pipelines.storage.corpus import Corpus

SHARDS, ROWS = 40, 2000


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """SHARDS files of ROWS lines, a third of them in other files too, some of them empty."""
    draw = random.Random(0)
    home = tmp_path_factory.mktemp("texts")
    for number in range(SHARDS):
        lines = [
            "" if draw.random() < 0.01 else f"{draw.randrange(125_000)} dogs saw a man in 2019"
            for _ in range(ROWS)
        ]
        (home / f"{number:02}.txt").write_text("\n".join(lines))
    return home


def content(folder):
    """Every part by its name, and the manifest."""
    parts = {p.name: p.read_bytes() for p in sorted(folder.glob("data/part-*"))}
    return parts, (folder / "manifest.json").read_bytes()


def start(texts, encoder, output):
    words = ("prepare", "--input", str(texts), "--output", str(output), "--encoder", encoder)
    return Command(*words, stderr=subprocess.PIPE, text=True)


def done(output):
    """Shards and parts that are done."""
    scratch = f"{output.name}.partial/*/scratch"
    patterns = f"{scratch}/[0-9]*.json", f"{scratch}/part-*.json"
    return sum(len(list(output.parent.glob(pattern))) for pattern in patterns)


def wait_for(count, output, process):
    """Until so many shards and parts are done."""
    began, seen = time.monotonic(), {}
    while (now := done(output)) < count:
        seen.setdefault(now, round(time.monotonic() - began, 2))
        if process.poll() is not None:
            message = process.stderr.read()
            pytest.fail(
                f"ended with {process.returncode} before {count} were seen: {seen} {message}"
            )
        assert time.monotonic() - began < 120, seen
        time.sleep(0.01)


def kill(process):
    process.send_signal(signal.SIGKILL)
    message = process.stderr.read()
    process.wait()
    return message


def kill_a_worker(process):
    """A worker that is at work; the actors that every job of Ray has have other names."""
    limit = time.monotonic() + 60
    while not (workers := workers_of(process)):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < limit, "no worker was there to be killed"
        time.sleep(0.01)
    os.kill(workers[0], signal.SIGKILL)


def workers_of(process):
    """Ray's processes below this one that read shards or write parts."""
    return below(process.pid, "ray::ReadRange")


@pytest.mark.ray_local
@pytest.mark.usefixtures("without_ray")
def test_a_corpus_is_the_same_after_kills_at_any_moment(texts, tmp_path, bert_folder, own_store):
    """One of the driver and one of a worker, at moments drawn among the files that are done."""
    output, quiet = tmp_path / "killed", tmp_path / "quiet"
    undisturbed = prepare(PrepareOptions((str(texts),), bert_folder), quiet)
    files = SHARDS + len(list(quiet.glob("data/part-*")))
    draw = random.Random(time.time_ns())
    moments = sorted(draw.sample(range(1, files - 1), 2))
    victims = draw.sample(["driver", "worker"], 2)
    process = start(texts, bert_folder, output)
    for moment, victim in zip(moments, victims, strict=True):
        wait_for(moment, output, process)
        if victim == "worker":
            kill_a_worker(process)
            continue
        kill(process)
        assert not output.exists(), (moments, victims)
        process = start(texts, bert_folder, output)
    message = process.communicate(timeout=180)[1]

    assert process.returncode == 0, (moments, victims, message)
    assert f"continuing {output}.partial: " in message
    assert content(output) == content(quiet), (moments, victims)
    result = read_json(output / "result.json")
    of_a_run = ("rows_of_this_run", "seconds", "sentences_per_second", "mlflow_run_id")
    own = [k for k in result if k not in of_a_run]
    assert {k: result[k] for k in own} == {k: undisturbed[k] for k in own}
    assert sorted(p.name for p in tmp_path.glob("killed*")) == ["killed"]
    # What was killed twice was one run of MLflow, which has ended well.
    runs = own_store.search_runs([own_store.get_experiment_by_name("cotbert").experiment_id])
    assert [run.info.run_id for run in runs] == [result["mlflow_run_id"]]
    assert runs[0].info.status == "FINISHED"


class StoppedError(Exception):
    pass


def stop(*arguments):
    raise StoppedError


@pytest.mark.usefixtures("without_ray")
def test_what_is_done_is_not_done_again(texts, tmp_path, bert_folder, monkeypatch):
    few = 2
    options = PrepareOptions((str(texts / "0[01].txt"),), bert_folder, sample=5_000)
    prepare(options, tmp_path / "whole")
    asked, map_shards = [], driver.map_shards

    def counted(task, count):
        asked.append(count)
        return map_shards(task, count)

    monkeypatch.setattr(driver, "map_shards", counted)
    for place, name in ((driver, "write_parts"), (prepare_job, "corpus_manifest")):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, stop)
            with pytest.raises(StoppedError):
                prepare(options, tmp_path / "again")
    # The rows were chosen before the first stop, and for good.
    monkeypatch.setattr(driver.duplicates, "mark_first", stop)
    prepare(options, tmp_path / "again")
    assert asked == [few, 0, len(list((tmp_path / "whole").glob("data/part-*"))), 0, 0]
    assert content(tmp_path / "again") == content(tmp_path / "whole")


@pytest.mark.usefixtures("without_ray")
def test_other_input_starts_again(texts, tmp_path, bert_folder, monkeypatch, capsys):
    path = tmp_path / "a.txt"
    path.write_text("one dog\ntwo dogs\n")
    out = tmp_path / "corpus"
    with monkeypatch.context() as patch:
        patch.setattr(driver, "write_parts", stop)
        with pytest.raises(StoppedError):
            prepare(PrepareOptions((str(path),), bert_folder), out)
    path.write_text("three dogs\nfour dogs\n")
    prepare(PrepareOptions((str(path),), bert_folder), out)
    assert (
        f"discarding {out}.partial, the work of an unfinished job with other files"
        in capsys.readouterr().err
    )
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
