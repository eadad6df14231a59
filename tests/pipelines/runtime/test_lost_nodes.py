"""The nodes that a cluster loses while a job runs on it are reported, once each."""

from __future__ import annotations

import threading

import pytest
import ray

from pipelines.runtime import lost_nodes
from pipelines.runtime.lost_nodes import lost_nodes_reported


def node(name, alive=True, reason=0, message=""):
    """A node as Ray describes it."""
    return {
        "NodeID": f"id of {name}",
        "NodeName": name,
        "Alive": alive,
        "DeathReason": reason,
        "DeathReasonMessage": message,
    }


@pytest.fixture
def watch(monkeypatch, capfd):
    """Return what is said while Ray gives these answers, one after another."""
    monkeypatch.setattr(lost_nodes, "LOOK_SECONDS", 0.001)

    def during(*answers):
        left, ended = list(answers), threading.Event()

        def nodes():
            if not left:
                ended.set()
                raise ConnectionError("the head does not answer")
            return left.pop(0)

        monkeypatch.setattr(ray, "nodes", nodes)
        with lost_nodes_reported():
            assert ended.wait(20)
        return capfd.readouterr().err

    return during


def test_a_lost_node_is_reported_once_with_its_cause(watch):
    lost = node("b", alive=False, reason=2, message="health check failed")
    said = watch([node("a"), node("b")], [node("a"), lost], [node("a"), lost], [node("c"), lost])
    assert said.splitlines() == [
        "warning: the cluster lost its node b (health check failed), and 1 node is left: its work "
        "is done again there, or waits for a new node"
    ]


def test_nodes_that_were_lost_before_or_had_nothing_to_do_are_not_reported(watch):
    before = node("a", alive=False, reason=2)
    idle = node("b", alive=False, reason=lost_nodes.IDLE)
    assert watch([before, node("b"), node("c")], [before, idle, node("c"), node("d")]) == ""


def test_two_nodes_lost_without_a_cause(watch):
    lost = [node(name, alive=False, reason=1) for name in "ab"]
    said = watch([node("a"), node("b"), node("c"), node("d")], [*lost, node("c"), node("d")])
    assert said.count("(for an unknown reason), and 2 nodes are left: ") == 2
