"""cotbert embed under kill -9 of a worker and of the driver, against an undisturbed run."""

from __future__ import annotations

import gzip
import os
import random
import signal
import subprocess
import time

import numpy as np
import pytest
from forked import Command
from process_tree import below
from waiting import until

from cotbert_core.files import read_json
from pipelines.embedding.embed import EmbedOptions, embed, read_embeddings

SHARDS, ROWS = 40, 500
WORDS = ("a man", "is playing", "the guitar", "and", "two dogs", "are", "running", "children")


def write_texts(home):
    """SHARDS files of ROWS lines, a shard and a block each, since compressed files share none; one
    line in a hundred is empty."""
    draw = random.Random(0)
    home.mkdir()
    for number in range(SHARDS):
        lines = [
            "" if draw.random() < 0.01 else " ".join(draw.choices(WORDS, k=draw.randrange(2, 12)))
            for _ in range(ROWS)
        ]
        (home / f"{number:02}.txt.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    return home


def start(texts, model, output):
    words = ("embed", model, "--input", str(texts), "--output", str(output))
    more = ("--workers", "2", "--precision", "fp32")
    return Command(*words, *more, stderr=subprocess.PIPE, text=True)


def done(output):
    """The records of the blocks that are done."""
    return set(output.parent.glob(f"{output.name}.partial/*/scratch/block-*.json"))


def wait_for(count, output, process):
    until(lambda: len(done(output)) >= count, 240, process)


@pytest.mark.ray_local
@pytest.mark.usefixtures("without_ray")
@pytest.mark.timeout(600)
def test_every_row_is_there_once_after_kills(tmp_path, bert_folder, own_store):
    texts = write_texts(tmp_path / "texts")
    output, quiet = tmp_path / "killed", tmp_path / "quiet"
    options = EmbedOptions(bert_folder, (str(texts),), precision="fp32")
    undisturbed = embed(options, quiet)
    moments = sorted(random.Random(time.time_ns()).sample(range(1, SHARDS - 4), 2))
    process = start(texts, bert_folder, output)
    wait_for(moments[0], output, process)
    workers = below(process.pid, "ray::MapWorker")  # the actors that hold an encoder
    assert workers, "no worker was there to be killed"
    os.kill(workers[0], signal.SIGKILL)
    wait_for(moments[1], output, process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not output.exists(), moments
    kept = {path.name: path.stat().st_mtime_ns for path in done(output)}

    process = start(texts, bert_folder, output)
    times: dict[str, int] = {}
    while process.poll() is None:
        times |= _times(output)
        time.sleep(0.05)
    message = process.stderr.read()
    assert process.returncode == 0, (moments, message)
    assert f"continuing {output}.partial: " in message
    assert {name: times[name] for name in kept} == kept, "a block that was done was done again"
    ids, vectors = read_embeddings(output)
    expected_ids, expected = read_embeddings(quiet)
    assert ids.tolist() == expected_ids.tolist()
    assert len(set(ids.tolist())) == len(ids) == undisturbed["rows"]
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    for name in ("skipped.jsonl", "manifest.json"):
        assert (output / name).read_bytes() == (quiet / name).read_bytes()
    result = read_json(output / "result.json")
    assert result["rows"] == undisturbed["rows"] > result["rows_of_this_run"] > 0
    assert sorted(p.name for p in tmp_path.glob("killed*")) == ["killed"]
    runs = own_store.search_runs([own_store.get_experiment_by_name("cotbert").experiment_id])
    assert [(run.info.run_id, run.info.status) for run in runs] == [
        (result["mlflow_run_id"], "FINISHED")
    ]


def _times(output):
    times = {}
    for path in done(output):
        try:
            times[path.name] = path.stat().st_mtime_ns
        except FileNotFoundError:  # the job ended meanwhile
            break
    return times
