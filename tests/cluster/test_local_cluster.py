"""A cluster's record and processes: reported as it is, stopped exactly, never half up."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from cluster import jobs, local, nodes
from cluster.nodes import LocalCluster
from cluster.server import JobServer
from cotbert_core.errors import UserError
from cotbert_core.files import write_json
from cotbert_core.training import devices
from pipelines.cli import main
from pipelines.runtime import processes

MADE = {
    "address": "http://127.0.0.1:1234",
    "ray_address": "127.0.0.1:1235",
    "nodes": 2,
    "cpus_per_node": 1,
}

OWN_MARK = f"mine-{os.getpid()}"  # the tests may run twice at a time on a machine


def recorded(place, mark):
    """A cluster in the state file, with a folder."""
    (place / "nodes").mkdir()
    known = LocalCluster(**MADE, mark=mark, folder=str(place / "nodes"))
    write_json(local.state_file(), vars(known))
    return known


@pytest.fixture
def sleepers(own_place):
    """Two processes with a mark, one of them another's child, and one with another mark."""
    code = "import subprocess, sys; subprocess.run(['sleep', '100'])"
    marked = {**os.environ, processes.MARK: OWN_MARK}
    parent = subprocess.Popen([sys.executable, "-c", code], env=marked, start_new_session=True)
    other = subprocess.Popen(
        ["sleep", "100"], env={**os.environ, processes.MARK: f"not-{OWN_MARK}"}
    )
    while len(processes.find_marked(OWN_MARK)) < 2:
        assert parent.poll() is None
    yield parent, other
    processes.terminate(OWN_MARK)  # the child too, which the next test would find
    for process in (parent, other):
        process.kill()
        process.wait()


def test_the_last_line_is_the_job_server(own_place, monkeypatch, capsys):
    made = LocalCluster(**MADE, mark=OWN_MARK, folder="/nodes")
    monkeypatch.setattr(local, "up", lambda *asked: made if asked == (3, 4) else None)
    assert main(["cluster", "up", "--nodes", "3", "--cpus-per-node", "4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == ["RAY_ADDRESS=127.0.0.1:1235", "http://127.0.0.1:1234"]
    assert "RAY_AUTH_MODE=token" in lines


def test_numbers_of_nodes(own_place, capsys):
    for option, name in (("--nodes", "nodes"), ("--cpus-per-node", "cpus_per_node")):
        assert main(["cluster", "up", option, "0"]) == 2
        assert f"{name} is 0: give 1 or more" in capsys.readouterr().err
        assert not local.state_file().exists()


def test_a_second_cluster_is_refused(sleepers, own_place, monkeypatch, capsys):
    recorded(own_place, OWN_MARK)
    assert main(["cluster", "up"]) == 2
    lost = "the cluster at http://127.0.0.1:1234 has lost its head: remove what is left of it with"
    assert lost in capsys.readouterr().err
    monkeypatch.setattr(JobServer, "get", lambda server, path: {"ray_version": "2"})
    assert main(["cluster", "up"]) == 2
    assert lost in capsys.readouterr().err, "the job server outlives the control service"
    monkeypatch.setattr(local.socket, "create_connection", lambda *given: socket.socket())
    assert main(["cluster", "up"]) == 2
    assert "a cluster is up already, at http://127.0.0.1:1234" in capsys.readouterr().err
    assert jobs.find_address(None) == MADE["address"]


def test_two_commands_at_a_time_are_refused(own_place, capsys):
    with local._lock():
        for action in ("up", "down"):
            assert main(["cluster", action]) == 2
            assert "another command is starting or stopping a cluster" in capsys.readouterr().err
    assert main(["cluster", "down"]) == 2
    assert "no cluster is up" in capsys.readouterr().err


def test_down_ends_exactly_its_processes(sleepers, own_place, capsys):
    parent, other = sleepers
    recorded(own_place, OWN_MARK)
    assert main(["cluster", "down"]) == 0
    assert "of 2 node(s) stopped: 2 processes" in capsys.readouterr().out
    parent.wait(5)  # by its signal, or because its child ended first
    assert other.poll() is None
    assert processes.find_marked(OWN_MARK) == set()
    assert not (own_place / "nodes").exists()
    assert not local.state_file().exists()


def test_a_cluster_that_has_ended_is_forgotten(own_place, capsys):
    recorded(own_place, "gone")
    assert local.running() is None
    with pytest.raises(UserError, match="none runs on this machine"):
        jobs.find_address(None)
    assert main(["cluster", "down"]) == 0
    assert "had ended already" in capsys.readouterr().out
    assert not local.state_file().exists()


def test_the_cluster_of_another_machine_with_the_same_cache_is_left_alone(
    own_place, monkeypatch, capsys
):
    recorded(own_place, "theirs")
    theirs = local.state_file()
    monkeypatch.setattr("socket.gethostname", lambda: "here")
    assert local.running() is None
    assert main(["cluster", "down"]) == 2
    assert "no cluster is up" in capsys.readouterr().err
    assert theirs.exists()


@pytest.mark.real
def test_a_start_that_fails_leaves_nothing(own_place, monkeypatch, capsys):
    """Of an earlier cluster that has ended neither."""
    before = recorded(own_place, "gone")
    plans = []

    def where(cluster, number):
        plans.append(cluster)
        return ["--head", "--port=none"]

    monkeypatch.setattr(nodes, "_where", where)
    assert main(["cluster", "up"]) == 1
    stderr = capsys.readouterr().err
    assert "node 1 of 2 did not start" in stderr
    assert "none" in stderr
    assert not local.state_file().exists()
    assert not os.path.exists(plans[0].folder)
    assert not os.path.exists(before.folder)
    assert processes.find_marked(plans[0].mark) == set()


def test_each_gpu_is_one_nodes(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5,7")
    assert [nodes._gpus()[node::2] for node in range(2)] == [["3", "7"], ["5"]]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert nodes._gpus() == []
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr(devices, "usable_gpus", lambda: 2)  # in WSL 2 /dev names none of them
    assert nodes._gpus() == ["0", "1"]
