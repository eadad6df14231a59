"""Report the nodes that a cluster loses while a job runs on it.

Ray does the work of a lost node again on the others, or waits for a new node, without a word.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pipelines.runtime.progress import say

LOOK_SECONDS = 2.0
# Ray's reason for the end of a node that the autoscaler took away since it had nothing to do.
IDLE = 4


@contextmanager
def lost_nodes_reported() -> Iterator[None]:
    """Warn of each node that is lost during the block, while this process is connected to Ray."""
    stop = threading.Event()
    thread = threading.Thread(target=_watch, args=(stop,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(LOOK_SECONDS)  # a lost head gives no answer for a minute


def _watch(stop: threading.Event) -> None:
    import ray

    known: set[str] = set()
    while not stop.wait(LOOK_SECONDS):
        try:
            nodes = ray.nodes()
        except Exception:  # the head is lost, of which the job tells
            return
        known = _report(nodes, known)


def _report(nodes: list[dict[str, Any]], known: set[str]) -> set[str]:
    """Warn of the nodes that were `known` to be alive and are not; return those that are now."""
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
