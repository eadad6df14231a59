"""cotbert prepare ended on the way, by a real kill of driver and worker too, and run again."""

from __future__ import annotations

import errno
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
from forked import Command
from process_tree import kill_first
from waiting import until

from cotbert_core.errors import UserError
from cotbert_core.files import read_json
from pipelines.preparing import driver
from pipelines.preparing import prepare as prepare_job
from pipelines.preparing.options import PrepareOptions
from pipelines.preparing.prepare import prepare
from pipelines.reading import text_readers
from pipelines.storage.corpus import Corpus

pytestmark = pytest.mark.usefixtures("without_ray")
SHARDS, ROWS = 40, 2000


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """SHARDS files of ROWS lines, a third of them in other files too, some of them empty."""
    draw, home = random.Random(0), tmp_path_factory.mktemp("texts")
    for number in range(SHARDS):
        lines = [
            "" if draw.random() < 0.01 else f"{draw.randrange(125_000)} dogs saw a man in 2019"
            for _ in range(ROWS)
        ]
        lines.append(" " * (prepare_job.FEW_BYTES // SHARDS))  # so many bytes that Ray runs
        (home / f"{number:02}.txt").write_text("\n".join(lines))
    return home


def content(folder):
    """Every part by its name, and the manifest."""
    parts = {p.name: p.read_bytes() for p in sorted(folder.glob("data/part-*"))}
    return parts, (folder / "manifest.json").read_bytes()


def wait_for(count, output, process):
    """Until so many shards and parts are done."""
    scratch = f"{output.name}.partial/*/scratch"
    patterns = f"{scratch}/[0-9]*.json", f"{scratch}/part-*.json"
    until(
        lambda: sum(len(list(output.parent.glob(one))) for one in patterns) >= count, 120, process
    )


@pytest.mark.ray_local
def test_a_corpus_is_the_same_after_kills_at_any_moment(texts, tmp_path, bert_folder, own_store):
    """One of the driver and one of a worker, at moments drawn among the files that are done."""
    output, quiet = tmp_path / "killed", tmp_path / "quiet"
    undisturbed = prepare(PrepareOptions((str(texts),), bert_folder), quiet)
    files = SHARDS + len(list(quiet.glob("data/part-*")))
    draw = random.Random(time.time_ns())
    moments = sorted(draw.sample(range(1, files - 1), 2))
    victims = draw.sample(["driver", "worker"], 2)

    def start():
        words = ("prepare", "--input", texts, "--output", output, "--encoder", bert_folder)
        return Command(*words, stderr=subprocess.PIPE, text=True)

    process = start()
    for moment, victim in zip(moments, victims, strict=True):
        wait_for(moment, output, process)
        if victim == "worker":  # of those that read shards or write parts
            kill_first(process.pid, "ray::ReadRange", 60)
            continue
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert not output.exists(), (moments, victims)
        process = start()
    message = process.communicate(timeout=180)[1]

    assert process.returncode == 0, (moments, victims, message)
    assert f"continuing {output}.partial: " in message
    assert content(output) == content(quiet), (moments, victims)
    result = read_json(output / "result.json")
    for name in result.keys() - {"rows_of_this_run", "seconds", "sentences_per_second",
                                 "mlflow_run_id"}:  # fmt: skip
        assert result[name] == undisturbed[name]
    assert sorted(p.name for p in tmp_path.glob("killed*")) == ["killed"]
    # What was killed twice was one run of MLflow, which has ended well.
    (run,) = own_store.search_runs([own_store.get_experiment_by_name("cotbert").experiment_id])
    assert (run.info.run_id, run.info.status) == (result["mlflow_run_id"], "FINISHED")


class StoppedError(Exception):
    pass


def stop(*arguments):
    raise StoppedError


@pytest.fixture
def stopped(monkeypatch):
    """Prepare until a function is called, as a job that is killed there."""

    def run(options, output, place, name):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, stop)
            with pytest.raises(StoppedError):
                prepare(options, output)

    return run


def test_what_is_done_is_not_done_again(texts, tmp_path, bert_folder, monkeypatch, stopped):
    options = PrepareOptions((str(texts / "0[01].txt"),), bert_folder, sample=5_000)
    prepare(options, tmp_path / "whole")
    asked, map_shards = [], driver.map_shards

    def counted(task, count):
        asked.append(count)
        return map_shards(task, count)

    monkeypatch.setattr(driver, "map_shards", counted)
    stopped(options, tmp_path / "again", driver, "write_parts")
    stopped(options, tmp_path / "again", prepare_job, "corpus_manifest")
    # The rows were chosen before the first stop, and for good.
    monkeypatch.setattr(driver.duplicates, "mark_first", stop)
    prepare(options, tmp_path / "again")
    assert asked == [2, 0, len(list((tmp_path / "whole").glob("data/part-*"))), 0, 0]
    assert content(tmp_path / "again") == content(tmp_path / "whole")


def test_a_fault_of_a_disk_that_passes_costs_no_finished_shard(
    texts, tmp_path, bert_folder, monkeypatch, capsys
):
    options = PrepareOptions((str(texts / "0[01].txt"),), bert_folder)
    read_lines = text_readers.file_lines

    def fail(name, *given):
        if name.endswith("01.txt"):
            raise OSError(errno.ETIMEDOUT, "Connection timed out")
        return read_lines(name, *given)

    with monkeypatch.context() as patch:
        patch.setattr(text_readers, "file_lines", fail)
        with pytest.raises(UserError, match=r"timed out\): give the same command again"):
            prepare(options, tmp_path / "out")
    capsys.readouterr()
    prepare(options, tmp_path / "out")
    assert f"continuing {tmp_path / 'out'}.partial: 1 of 2 shards" in capsys.readouterr().err


def test_a_job_whose_output_is_in_its_input_folder_continues(tmp_path, bert_folder, stopped):
    options = PrepareOptions((str(tmp_path / "texts"),), bert_folder)
    out = tmp_path / "texts" / "corpus"
    out.parent.mkdir()
    (out.parent / "a.txt").write_text("one dog\ntwo dogs\n")
    prepare(options, tmp_path / "whole")
    stopped(options, out, driver, "write_parts")
    stopped(options, out, Path, "rename")
    out.with_name("corpus.lock").write_text("1\nhost\n")  # a killed job leaves it
    prepare(options, out)
    assert content(out) == content(tmp_path / "whole")


def test_files_in_another_order_continue_the_job_and_its_mlflow_run(
    tmp_path, bert_folder, stopped, monkeypatch
):
    paths = [str(tmp_path / name) for name in ("a.txt", "b.txt")]
    for path in paths:
        Path(path).write_text(f"one {path}\n")
        Path(f"{path}.seen.txt").write_text(f"two {path}\n")
    logged = []
    run = prepare_job.resumable_run
    monkeypatch.setattr(
        prepare_job, "resumable_run", lambda *given: logged.append(given[2]) or run(*given)
    )
    for inputs in (tuple(paths), (paths[1], *paths)):
        exclude = tuple(f"{path}.seen.txt" for path in inputs)
        options = PrepareOptions(inputs, bert_folder, exclude=exclude)
        stopped(options, tmp_path / "corpus", driver, "write_parts")
    assert logged[0] == logged[1]


def test_other_input_starts_again(tmp_path, bert_folder, stopped, capsys):
    path, out = tmp_path / "a.txt", tmp_path / "corpus"
    options = PrepareOptions((str(path),), bert_folder)
    path.write_text("one dog\ntwo dogs\n")
    stopped(options, out, driver, "write_parts")
    path.write_text("three dogs\nfour dogs\n")
    prepare(options, out)
    message = f"discarding {out}.partial, the work of an unfinished job with other input {path}"
    assert message in capsys.readouterr().err
    assert list(Corpus.open(out).texts().values()) == ["three dogs", "four dogs"]


def test_a_job_that_was_killed_before_its_folder_had_its_name_is_finished(
    texts, tmp_path, bert_folder, monkeypatch, stopped
):
    out, options = tmp_path / "corpus", PrepareOptions((str(texts / "00.txt"),), bert_folder)
    stopped(options, out, Path, "rename")
    assert not out.exists()
    monkeypatch.setattr(prepare_job, "_run", stop)
    result = prepare(options, out)
    assert result == read_json(out / "result.json")
    assert len(Corpus.open(out).texts()) == result["rows"] > 1000
    assert not Path(f"{out}.partial").exists()
