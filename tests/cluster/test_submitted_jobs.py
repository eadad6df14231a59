"""Jobs on a real cluster of two nodes on this machine, brought up and taken down as users do."""

from __future__ import annotations

import os
import re
from pathlib import Path

import clean_place
import numpy as np
import pytest

from cluster import local, processes
from cluster.server import JobServer, Node
from cotbert_core import SentenceEncoder
from cotbert_core.errors import UserError
from cotbert_core.files import read_json
from pipelines.cli import main
from pipelines.embed import read_embeddings

pytestmark = [pytest.mark.ray_local, pytest.mark.real, pytest.mark.timeout(120)]

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


def listening(pids):
    """Local addresses, in hexadecimal, at which these processes listen."""
    inodes = set()
    for pid in pids:
        for file in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                inodes.update(re.findall(r"socket:\[(\d+)\]", os.readlink(file)))
            except OSError:  # closed meanwhile
                continue
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in inodes:
                yield words[1].partition(":")[0]


def test_the_nodes_answer_on_loopback_alone_and_ask_for_the_token(cluster, place):
    server = JobServer(cluster.address)
    assert server.nodes() == [Node(1, 0)] * 2
    found = set(listening(processes.marked(cluster.mark)))
    assert found == {"0100007F", "0000000000000000FFFF00000100007F"}
    assert (place / "home/.ray/auth_token").stat().st_mode & 0o777 == 0o600
    for headers, text in (({}, "asks for a token"), ({"Authorization": "Bearer no"}, "not take")):
        server.headers = headers
        with pytest.raises(UserError, match=text):
            server.nodes()


def test_a_job_does_there_what_it_does_here(cluster, place, bert_folder, capfd):
    for name, texts in (("a.txt", TEXTS[:2]), ("b.txt", TEXTS[2:])):
        (place / name).write_text("\n".join(texts) + "\n")
    command = ["embed", bert_folder, "--input", "a.txt", "b.txt", "--output", "out"]
    assert main(["submit", "--name", "vectors", "--", *command, "--precision", "fp32"]) == 0
    told = capfd.readouterr()
    assert re.search(r"rows +3\n", told.out)
    assert f"cotbert submit --logs vectors --address {cluster.address}" in told.err
    assert read_json(place / "out" / "result.json")["workers"] == 2
    ids, vectors = read_embeddings(place / "out")
    expected = SentenceEncoder.from_pretrained(bert_folder).encode(TEXTS, precision="fp32")
    np.testing.assert_allclose(vectors[np.argsort(ids)], expected, rtol=1e-3, atol=1e-4)
    assert (place / "mlflow.db").is_file()
    assert main(["submit", "--name", "vectors", "--", *command]) == 2
    assert "a job 'vectors' is there already (succeeded)" in capfd.readouterr().err


def test_a_job_that_fails_tells_why_with_its_own_status(cluster, capfd):
    """The mistake is one that cannot be seen from here."""
    for words in (["--name", "failing", "--", "recipes", "nothing"], ["--logs", "failing"]):
        with pytest.raises(SystemExit) as ended:
            main(["submit", *words])
        told = capfd.readouterr()
        assert ended.value.code == 2
        assert "cotbert: unknown recipe 'nothing'" in told.out
        assert "cotbert: the job failing failed: unknown recipe 'nothing'" in told.err
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


def test_down_leaves_nothing(cluster, capfd):
    """The last test of this file."""
    had = processes.marked(cluster.mark)
    assert len(had) > 8
    assert main(["cluster", "down"]) == 0
    assert "stopped" in capfd.readouterr().out
    assert processes.marked(cluster.mark) == set()
    assert not had & set(processes._parents())
    assert not os.path.exists(cluster.folder)
    assert not local.state_file().exists()
    assert main(["submit", "--status", "vectors", "--address", cluster.address]) == 2
    assert "no Ray job server answers" in capfd.readouterr().err
