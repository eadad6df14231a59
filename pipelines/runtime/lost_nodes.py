"""Watch the nodes of Ray while a job runs, and report those that a cluster loses.

Ray does the work of a lost node again on the others, or waits for a new node, without a word.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pipelines.runtime.progress import say

# What `ray.nodes` returns.
Nodes = list[dict[str, Any]]
# Time between two looks for the nodes; Ray notices after 16 s that one is dead.
LOOK_SECONDS = 2.0
# Ray's reason for the end of a node that the autoscaler took away since it had nothing to do.
IDLE = 4


@contextmanager
def nodes_watched(look: Callable[[Nodes], None]) -> Iterator[None]:
    """Call `look` with Ray's nodes, dead ones included, now and then during the block, in a thread.

    This process must be connected to Ray.
    """
    stop = threading.Event()
    thread = threading.Thread(target=_watch, args=(look, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(LOOK_SECONDS)  # a lost head gives no answer for a minute


def _watch(look: Callable[[Nodes], None], stop: threading.Event) -> None:
    import ray

    while not stop.wait(LOOK_SECONDS):
        try:
            nodes = ray.nodes()
        except Exception:  # no answer; if the head is lost, the job itself fails
            continue
        look(nodes)


@contextmanager
def lost_nodes_reported() -> Iterator[None]:
    """Warn of each node that is lost during the block."""
    known: set[str] = set()

    def look(nodes: Nodes) -> None:
        nonlocal known
        known = _report(nodes, known)

    with nodes_watched(look):
        yield


def _report(nodes: Nodes, known: set[str]) -> set[str]:
    """Warn of each `known` node that is no longer alive; return the ids of those that are."""
    alive = {node["NodeID"] for node in nodes if node["Alive"]}
    for node in nodes:
        if node["NodeID"] in known - alive and node["DeathReason"] != IDLE:
            left = "1 node is" if len(alive) == 1 else f"{len(alive)} nodes are"
            why = node["DeathReasonMessage"].strip() or "for an unknown reason"
            say(
                f"warning: the cluster lost its node {node['NodeName']} ({why[:100]}), and {left} "
                "left: its work is done again there, or waits for a new node"
            )
    return alive
