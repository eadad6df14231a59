"""Jobs on a real cluster of two nodes on this machine, brought up and taken down as users do."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import urllib.request
from contextlib import suppress
from functools import partial
from http.client import HTTPException
from pathlib import Path

import clean_place
import numpy as np
import pytest
from file_modes import check_modes, note_modes
from forked import COTBERT, Command
from listening import listeners
from waiting import until

from cluster import local, nodes
from cluster.server import JobServer
from cotbert_core import SentenceEncoder
from cotbert_core.errors import UserError
from cotbert_core.files import read_json
from cotbert_core.training.checkpoints import checkpoints
from pipelines.cli import main
from pipelines.embedding.embed import read_embeddings
from pipelines.runtime import processes
from pipelines.runtime.ray_session import LOOPBACK
from pipelines.training.metrics_log import read_rows

pytestmark = [pytest.mark.ray_local, pytest.mark.real, pytest.mark.timeout(600)]

SECRET = "home/.ray/auth_token"
TEXTS = ["A man is singing.", "Two dogs run", "What do you want?"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A clean place of this module's own."""
    with pytest.MonkeyPatch.context() as patch:
        yield clean_place.clean(patch, tmp_path_factory.mktemp("place"))


@pytest.fixture(scope="module")
def cluster(place):
    """Two nodes of one core each."""
    made = local.up(nodes=2, cpus_per_node=1)
    yield made
    if local.state_file().exists():
        local.down()


def without_token(port):
    """What HTTP at a port of this machine answers to whoever asks."""
    found = []
    for path in ("/metrics", "/api/jobs/", "/api/v0/nodes", "/logs"):
        with suppress(OSError, HTTPException):  # refused (401), or no HTTP at all
            found.append(urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5).read())
    return found


def test_the_nodes_answer_on_loopback_alone_and_ask_for_the_token(cluster, place):
    server = JobServer(cluster.address)
    assert server.live_nodes() == 2
    found = set(listeners(processes.find_marked(cluster.mark)))
    assert {one.address for one in found} == {"127.0.0.1", "::ffff:127.0.0.1"}
    token = (place / SECRET).read_bytes()
    metrics = [text for port in {one.port for one in found} for text in without_token(port)]
    assert metrics  # of the nodes, which the page on security names
    assert all(text.startswith(b"# HELP ") and token not in text for text in metrics)
    for headers, text in (({}, "requires a token"), ({"Authorization": "Bearer no"}, "rejects")):
        server.headers = headers
        with pytest.raises(UserError, match=text):
            server.live_nodes()


def test_a_job_does_there_what_it_does_here(cluster, place, bert_folder, capfd):
    (place / "a.txt").write_text("\n".join(TEXTS[:2]) + "\n")
    others = [json.dumps({"text": text}) for text in TEXTS[2:]]
    (place / "b.jsonl").write_text("\n".join(others))  # two txt files would share a worker
    command = ["embed", bert_folder, "--input", "a.txt", "b.jsonl", "--output", "out"]
    assert main(["submit", "--name", "vectors", "--", *command, "--precision", "fp32"]) == 0
    captured = capfd.readouterr()
    assert re.search(r"rows +3\n", captured.out)
    assert f"cotbert submit --logs vectors --address {cluster.address}" in captured.err
    assert read_json(place / "out" / "result.json")["workers"] == 2
    ids, vectors = read_embeddings(place / "out")
    expected = SentenceEncoder.from_pretrained(bert_folder).encode(TEXTS, precision="fp32")
    np.testing.assert_allclose(vectors[np.argsort(ids)], expected, rtol=1e-3, atol=1e-4)
    assert (place / "mlflow.db").is_file()
    assert main(["submit", "--name", "vectors", "--", *command]) == 2
    assert "a job 'vectors' already exists (succeeded)" in capfd.readouterr().err


def test_a_job_that_fails_tells_why_with_its_own_status(cluster, capfd):
    """The mistake is one that cannot be seen from here."""
    for words in (["--name", "failing", "--", "recipes", "nothing"], ["--logs", "failing"]):
        with pytest.raises(SystemExit) as ended:
            main(["submit", *words])
        captured = capfd.readouterr()
        assert ended.value.code == 2
        assert "cotbert: unknown recipe 'nothing'" in captured.out
        assert "cotbert: the job failing failed: unknown recipe 'nothing'" in captured.err
    assert main(["submit", "--status", "failing"]) == 0
    rows = dict(re.findall(r"(?m)^(\w+(?: \w+)?)  +(.*)$", capfd.readouterr().out))
    assert (rows["status"], rows["exit status"]) == ("failed", "2")
    assert rows["command"] == "cotbert recipes nothing"


def test_a_job_is_left_and_stopped(cluster, place, bert_folder, capfd):
    command = ["embed", bert_folder, "--input", "a.txt", "--output", "stopped"]
    assert main(["submit", "--name", "long", "--no-wait", "--", *command]) == 0
    assert capfd.readouterr().out == "long\n"
    for text in ("has ended: stopped", "had ended already: stopped"):
        assert main(["submit", "--stop", "long"]) == 0
        assert f"the job long {text}" in capfd.readouterr().out


def training(encoder, output, *more):
    """Of two workers, one a node."""
    command = ["train", "quickstart", "--encoder", encoder, "--corpus", "sentences.txt"]
    flags = "workers=2 batch_size=8 max_steps=40 eval_every=10 precision=fp32 max_length=12"
    sets = (word for flag in (*flags.split(), *more) for word in ("--set", flag))
    return [*command, "--output", output, *sets]


@pytest.fixture(scope="module")
def sentences(place):
    """Forty-eight of them in sentences.txt."""
    subjects = ("A man", "Two dogs", "The children", "She", "Nobody", "A woman")
    ends = ("on the stage.", "in the field", "while they watch the ice.", "after the answer.")
    lines = [f"{s} {v} {e}" for s in subjects for v in ("is singing", "walks") for e in ends]
    (place / "sentences.txt").write_text("\n".join(lines))


@pytest.fixture(scope="module")
def trained(cluster, place, bert_folder, sentences):
    """A submitted training that nothing happened to."""
    assert main(["submit", "--name", "train", "--", *training(bert_folder, "quiet")]) == 0
    return place / "quiet"


def curve(output):
    """The loss and the dev score of each step, and how often a step was done again."""
    lines = (output / "metrics.jsonl").read_text().splitlines()
    losses = [row["step"] for row in map(json.loads, lines) if "loss" in row]
    rows = read_rows(output / "metrics.jsonl")
    kept = {step: (row.get("loss"), row.get("dev_spearman")) for step, row in rows.items()}
    return kept, len(losses) - len(set(losses))


def test_a_training_of_both_nodes(trained, place):
    result = read_json(trained / "result.json")
    assert (result["workers"], result["steps"]) == (2, 40)
    kept, again = curve(trained)
    assert (len(kept), again) == (41, 0)
    assert (trained / "model" / "model.safetensors").is_file()
    assert not list(place.glob("*.lock"))


@pytest.fixture
def driven(cluster, place, bert_folder, sentences, monkeypatch):
    """A command whose driver runs here and whose tasks run on the cluster."""
    own = {"RAY_ADDRESS": cluster.ray_address, "RAY_AUTH_MODE": "token", **LOOPBACK}
    for name, value in {**own, "MLFLOW_TRACKING_URI": f"sqlite:///{place / 'mlflow.db'}"}.items():
        monkeypatch.setenv(name, value)
    return partial(Command, stderr=subprocess.PIPE, text=True)


def test_what_a_node_does_not_see_is_refused_before_anything_begins(driven, place, bert_folder):
    """/proc/self/fd/N is this process's and its driver's, and none of a worker's."""
    (place / "mine").mkdir()
    folder = os.open(place / "mine", os.O_RDONLY)
    os.set_inheritable(folder, True)
    output = f"/proc/self/fd/{folder}/out"
    command = ("prepare", "--input", "sentences.txt", "--output", output, "--encoder", bert_folder)
    job = subprocess.Popen(
        [COTBERT, *command], pass_fds=(folder,), stderr=subprocess.PIPE, text=True
    )
    error = job.communicate()[1]
    os.close(folder)
    assert (job.returncode, error.count("\n")) == (2, 1), error
    assert f"does not see {output!r}: give a path on storage that all nodes share" in error
    assert list((place / "mine").iterdir()) == []


def test_resources_that_are_not_there_are_refused_before_anything_begins(
    driven, place, bert_folder
):
    for setting, each in (("gpus_per_worker=1", "1 core(s) and a GPU"), ("workers=4", "1 core(s)")):
        job = driven(*training(bert_folder, "many", setting))
        error = job.communicate()[1]
        assert job.returncode == 2, error
        assert f"with {each} each, and the nodes have 1, 1 core(s) and 0 GPU(s), enough" in error
        assert not (place / "many").exists()


@pytest.mark.timeout(600)
def test_a_killed_worker_and_a_lost_node_cost_an_interval_each(
    driven, cluster, trained, place, bert_folder
):
    """The curve of the submitted one, bit for bit."""
    output = place / "disturbed"
    job = driven(*training(bert_folder, str(output)))

    def wait_for_checkpoint(step):
        until(lambda: any(c.step >= step for c in checkpoints(output / "checkpoints")), process=job)

    wait_for_checkpoint(10)
    os.kill(
        min(processes.filter_by_title(processes.find_marked(cluster.mark), "ray::RayTrainWorker")),
        signal.SIGKILL,
    )
    second = driven(*training(bert_folder, str(output)))
    wait_for_checkpoint(20)
    assert nodes.kill_node(cluster, 1) > 3
    nodes.start(cluster, 2)
    message, refused = job.communicate()[1], second.communicate()[1]
    assert job.returncode == 0, message
    assert len(re.findall("warning: .* continuing from the checkpoint of step [12]0", message)) == 2
    assert (second.returncode, refused.count("cotbert: ")) == (2, 1), refused
    assert f"is being written by process {job.pid} on " in refused
    (kept, again), (expected, _) = curve(output), curve(trained)
    assert kept == expected
    assert again == 0, "each step is in the file once"
    models = [folder / "model" / "model.safetensors" for folder in (output, trained)]
    assert models[0].read_bytes() == models[1].read_bytes()


def test_no_file_of_nodes_and_jobs_is_open_to_others(cluster, place):
    """After all the jobs of this file."""
    modes = {}
    for folder in (place, Path(cluster.folder)):
        note_modes(modes, folder)
    assert len(modes) > 100
    check_modes(modes, place / SECRET)


def test_down_leaves_nothing(cluster, capfd):
    """The last test of this file."""
    had = processes.find_marked(cluster.mark)
    assert len(had) > 8
    assert main(["cluster", "down"]) == 0
    assert "stopped" in capfd.readouterr().out
    assert processes.find_marked(cluster.mark) == set()
    assert not had & set(processes.parents())
    assert not os.path.exists(cluster.folder)
    assert not local.state_file().exists()
    assert main(["submit", "--status", "vectors", "--address", cluster.address]) == 2
    assert "no Ray job server answers" in capfd.readouterr().err
