"""A Ray cluster of several nodes on this machine: each a raylet of its own, on loopback alone.

It is what a large cluster is, only small: jobs come through a job server, workers of different
nodes share nothing but the disk, and a token is asked for. `up` and `down` may be called from
different processes; what is running stands in a file of the cache folder.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cluster import processes
from cluster.server import JobServer
from cluster.tokens import MODE, ensure_token
from cotbert_core.errors import UserError
from cotbert_core.files import read_json, write_json
from pipelines.places import cache_folder
from pipelines.progress import say
from pipelines.ray_session import LOOPBACK, own_cores

HOST = "127.0.0.1"
START_SECONDS = 60.0
# Ray's sockets lie about 70 characters below a node's folder, and Linux allows 107 for them.
LONGEST_FOLDER = 32
STORE_BYTES = 2 << 30


@dataclass(frozen=True)
class LocalCluster:
    """A cluster that `up` made.

    address: of the job server, http://. ray_address: for RAY_ADDRESS. mark: in the environment of
    all its processes. folder: of its nodes' logs and sockets.
    """

    address: str
    ray_address: str
    nodes: int
    cpus_per_node: int
    mark: str
    folder: str


def state_file() -> Path:
    return cache_folder() / "cluster.json"


def running() -> LocalCluster | None:
    """The cluster that `up` made and that still has processes."""
    if not state_file().is_file():
        return None
    known = LocalCluster(**read_json(state_file()))
    return known if processes.marked(known.mark) else None


def up(nodes: int = 2, cpus_per_node: int | None = None) -> LocalCluster:
    """Bring a cluster up and wait until its job server and all nodes answer.

    cpus_per_node: cores that tasks may ask of each node; this machine's, shared out, by default.
    UserError when one is up already. Where a start fails, all that had started is stopped.
    """
    cluster = _plan(nodes, cpus_per_node)
    with _claimed(cluster):
        made = ensure_token()
        if made is not None:
            say(f"made a token for this machine's clusters: {made}")
        for number in range(nodes):
            _start(cluster, number)
        _wait_until_whole(cluster)
    return cluster


def down() -> tuple[LocalCluster, int]:
    """Stop the cluster of `up`; it, and how many processes there were (0: it had ended)."""
    if not state_file().is_file():
        raise UserError(
            "no cluster is up: `cotbert cluster up` makes one, and one that something else "
            "started is left alone"
        )
    cluster = LocalCluster(**read_json(state_file()))
    return cluster, _remove(cluster)


def _plan(nodes: int, cpus_per_node: int | None) -> LocalCluster:
    for name, number in (("nodes", nodes), ("cpus_per_node", cpus_per_node)):
        if number is not None and number < 1:
            raise UserError(f"{name} is {number}: give 1 or more")
    gcs, dashboard = _free_ports(2)
    cpus = cpus_per_node or max(1, own_cores() // nodes)
    mark = secrets.token_hex(8)
    folder = Path(tempfile.gettempdir()) / f"cotbert-{mark}"
    if len(str(folder)) > LONGEST_FOLDER:
        folder = Path("/tmp") / folder.name
    address = f"http://{HOST}:{dashboard}"
    return LocalCluster(address, f"{HOST}:{gcs}", nodes, cpus, mark, str(folder))


@contextmanager
def _claimed(cluster: LocalCluster) -> Iterator[None]:
    """The state file is this cluster's, written first so that `down` ends even a killed start."""
    known = running()
    if known is not None:
        raise UserError(
            f"a cluster is up already, at {known.address}: use it, or end it by "
            "`cotbert cluster down`"
        )
    if state_file().is_file():  # of a cluster that has ended, with the machine perhaps
        _remove(LocalCluster(**read_json(state_file())))
    Path(cluster.folder).mkdir(mode=0o700)
    write_json(state_file(), asdict(cluster))
    try:
        yield
    except BaseException:
        _remove(cluster)
        raise


def _remove(cluster: LocalCluster) -> int:
    """End its processes, then remove its folder and record."""
    ended = processes.stop(cluster.mark)
    shutil.rmtree(cluster.folder, ignore_errors=True)
    state_file().unlink(missing_ok=True)
    return ended


def _start(cluster: LocalCluster, number: int) -> None:
    """Start one node, the first as the head; RuntimeError with Ray's words when it does not."""
    folder = Path(cluster.folder) / str(number)
    folder.mkdir()
    gpus = _gpus()[number :: cluster.nodes]
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", *_where(cluster, number)]
    command += [f"--num-cpus={cluster.cpus_per_node}", f"--num-gpus={len(gpus)}"]
    command += [f"--temp-dir={folder}", f"--object-store-memory={_store_bytes(cluster.nodes)}"]
    command += ["--min-worker-port=0", "--max-worker-port=0", "--disable-usage-stats"]
    environment = {**_environment(cluster, number), "CUDA_VISIBLE_DEVICES": ",".join(gpus)}
    log = folder / "start.log"  # no pipe: the daemons would hold it open
    with log.open("wb") as output:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            timeout=START_SECONDS,
            check=False,
            start_new_session=True,
        )
    if done.returncode:
        lines = log.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
        raise RuntimeError(
            f"node {number + 1} of {cluster.nodes} did not start ({lines[-1].strip()}); what had "
            "started is stopped"
        )


def _where(cluster: LocalCluster, number: int) -> list[str]:
    """A node's options of addresses and ports."""
    if number:
        # To 0.0.0.0 goes to loopback too, and unlike 127.0.0.1 Ray takes it as it is.
        return [
            f"--address=0.0.0.0:{_port(cluster.ray_address)}",
            "--dashboard-agent-listen-port=0",
        ]
    client, agent = _free_ports(2)
    ports = [
        f"--port={_port(cluster.ray_address)}",
        f"--dashboard-port={_port(cluster.address)}",
        f"--ray-client-server-port={client}",
        f"--dashboard-agent-listen-port={agent}",
    ]
    return ["--head", f"--node-ip-address={HOST}", f"--dashboard-host={HOST}", *ports]


def _port(address: str) -> str:
    return address.rpartition(":")[2]


def _environment(cluster: LocalCluster, number: int) -> dict[str, str]:
    """Of a node, and so of every job and worker on it."""
    own = {
        k: v for k, v in os.environ.items() if k not in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS")
    }
    return {
        **own,
        MODE: "token",
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "RAY_USAGE_STATS_ENABLED": "0",
        processes.MARK: cluster.mark,
        # Ray starts no second node where it believes that there cannot be one.
        **{name: "1" if number else value for name, value in LOOPBACK.items()},
    }


def _free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens at, all different."""
    free = [socket.socket() for _ in range(count)]
    try:
        for one in free:
            one.bind((HOST, 0))
        return [one.getsockname()[1] for one in free]
    finally:
        for one in free:
            one.close()


def _gpus() -> list[str]:
    """This process's GPUs; each goes to one node alone."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [gpu for gpu in named.split(",") if gpu not in ("", "-1")]
    devices = Path("/dev").glob("nvidia[0-9]*")
    return sorted(device.name.removeprefix("nvidia") for device in devices)


def _store_bytes(nodes: int) -> int:
    """Shared memory of each node's objects: the nodes together take half of what is free."""
    free = shutil.disk_usage("/dev/shm").free
    return max(100 << 20, min(STORE_BYTES, free // (2 * nodes)))


def _wait_until_whole(cluster: LocalCluster) -> None:
    """Return when the job server knows all nodes."""
    limit = time.monotonic() + START_SECONDS
    server = JobServer(cluster.address)
    while True:
        try:
            server.check_versions()
            found: Any = len(server.nodes())
        except UserError as error:
            found = error
        if found == cluster.nodes:
            return
        if time.monotonic() > limit:
            raise RuntimeError(
                f"after {START_SECONDS:.0f} s not all of {cluster.nodes} nodes had joined "
                f"({found}); what had started is stopped"
            )
        time.sleep(0.2)
