"""A Ray cluster of several nodes on this machine, each a raylet that only listens on loopback.

It works like a large cluster: jobs are submitted to a job server, workers of different nodes share
only the disk, and a token is required. `up` and `down` may be called from different processes; a
file in the cache folder records the running cluster.
"""

from __future__ import annotations

import fcntl
import secrets
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cluster.nodes import HOST, START_SECONDS, LocalCluster, free_ports, start
from cluster.server import JobServer, NoAnswerError
from cotbert_core.errors import UserError
from cotbert_core.files import read_json, write_json
from pipelines.runtime import processes
from pipelines.runtime.auth_token import ensure_token
from pipelines.runtime.cores import available_cores
from pipelines.runtime.progress import say
from pipelines.runtime.ray_folders import ray_folder
from pipelines.runtime.ray_session import check_installation
from pipelines.storage.paths import cache_folder

CONNECT_SECONDS = 5.0


def state_file() -> Path:
    """Return the record of this machine's cluster; machines may share the cache folder."""
    return cache_folder() / f"cluster-{socket.gethostname()}.json"


def running() -> LocalCluster | None:
    """Return the cluster that `up` started, if it still has processes."""
    if not state_file().is_file():
        return None
    known = LocalCluster(**read_json(state_file()))
    return known if processes.find_marked(known.mark) else None


def up(nodes: int = 2, cpus_per_node: int | None = None) -> LocalCluster:
    """Start a cluster and wait until its job server and all nodes answer.

    cpus_per_node: number of cores that each node offers to tasks, by default this machine's cores
    divided among the nodes. Raises UserError if a cluster is running. If a node fails to start, the
    others are stopped.
    """
    check_installation()
    cluster = _plan(nodes, cpus_per_node)
    with _lock(), _recorded(cluster):
        token_file = ensure_token()
        if token_file is not None:
            say(f"made a token for this machine's clusters: {token_file}")
        for number in range(nodes):
            start(cluster, number)
        _wait_until_whole(cluster)
    return cluster


def down() -> tuple[LocalCluster, int]:
    """Stop the cluster that `up` started; return it and the number of stopped processes."""
    with _lock():
        if not state_file().is_file():
            raise UserError(
                "no cluster is up: start one with `cotbert cluster up`; clusters that were started "
                "in other ways are not stopped"
            )
        cluster = LocalCluster(**read_json(state_file()))
        return cluster, _remove(cluster)


@contextmanager
def _lock() -> Iterator[None]:
    """Prevent other processes from starting or stopping a cluster during the block."""
    lock = state_file().with_suffix(".lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                "another command is starting or stopping a cluster: wait until it has ended"
            ) from None
        yield


def _plan(nodes: int, cpus_per_node: int | None) -> LocalCluster:
    for name, number in (("nodes", nodes), ("cpus_per_node", cpus_per_node)):
        if number is not None and number < 1:
            raise UserError(f"{name} is {number}: give 1 or more")
    gcs, dashboard = free_ports(2)
    cpus = cpus_per_node or max(1, available_cores() // nodes)
    mark = secrets.token_hex(4)  # short, for the paths of Ray's sockets
    folder = str(ray_folder(f"cotbert-{mark}"))
    address = f"http://{HOST}:{dashboard}"
    return LocalCluster(address, f"{HOST}:{gcs}", nodes, cpus, mark, folder)


@contextmanager
def _recorded(cluster: LocalCluster) -> Iterator[None]:
    """Write the state file before the block starts nodes, so `down` can clean up after a kill.

    An error in the block removes the cluster.
    """
    known = running()
    if known is not None:
        if not _has_head(known):
            raise UserError(
                f"the cluster at {known.address} has lost its head: remove what is left of it with "
                "`cotbert cluster down`, then start a new one"
            )
        raise UserError(
            f"a cluster is up already, at {known.address}: use it, or stop it with "
            "`cotbert cluster down`"
        )
    if state_file().is_file():  # left by a cluster that has ended, e.g. after a reboot
        _remove(LocalCluster(**read_json(state_file())))
    Path(cluster.folder).mkdir(mode=0o700)
    write_json(state_file(), asdict(cluster))
    try:
        yield
    except BaseException:
        _remove(cluster)
        raise


def _has_head(cluster: LocalCluster) -> bool:
    """Return whether the head's control service and its job server answer; the second outlives the
    first by minutes."""
    host, port = cluster.ray_address.split(":")
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
        JobServer(cluster.address).get("/api/version")
    except (OSError, NoAnswerError):
        return False
    return True


def _remove(cluster: LocalCluster) -> int:
    """End the cluster's processes and delete its folder and state file; return their number."""
    ended = processes.terminate(cluster.mark)
    shutil.rmtree(cluster.folder, ignore_errors=True)
    state_file().unlink(missing_ok=True)
    return ended


def _wait_until_whole(cluster: LocalCluster) -> None:
    """Wait until all nodes have joined."""
    limit = time.monotonic() + START_SECONDS
    server = JobServer(cluster.address)
    while True:
        try:
            server.check_versions()
            found: Any = server.live_nodes()
        except UserError as error:
            found = error
        if found == cluster.nodes:
            return
        if time.monotonic() > limit:
            raise RuntimeError(
                f"after {START_SECONDS:.0f} s not all of {cluster.nodes} nodes had joined "
                f"({found}); the started nodes are stopped"
            )
        time.sleep(0.2)
