"""Start and kill nodes of a local cluster."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from pipelines.runtime import processes
from pipelines.runtime.auth_token import MODE
from pipelines.runtime.ray_session import LOOPBACK

HOST = "127.0.0.1"
START_SECONDS = 60.0
STORE_BYTES = 2 << 30


@dataclass(frozen=True)
class LocalCluster:
    """A cluster that `up` started.

    address: http:// address of the job server. ray_address: value for RAY_ADDRESS. mark: text in
    the environment of all its processes. folder: folder of its nodes' logs and sockets.
    """

    address: str
    ray_address: str
    nodes: int
    cpus_per_node: int
    mark: str
    folder: str


def start(cluster: LocalCluster, number: int) -> None:
    """Start a node; number 0 is the head. Raises RuntimeError with Ray's message if that fails.

    A number beyond the nodes that `up` started adds a node with the GPUs of a lost one.
    """
    folder = Path(cluster.folder) / str(number)
    folder.mkdir()
    gpus = _gpus()[number % cluster.nodes :: cluster.nodes]
    command = [sys.executable, "-P", "-m", "ray.scripts.scripts", "start", *_where(cluster, number)]
    command += [f"--num-cpus={cluster.cpus_per_node}", f"--num-gpus={len(gpus)}"]
    command += [f"--temp-dir={folder}", f"--object-store-memory={_store_bytes(cluster.nodes)}"]
    command += ["--min-worker-port=0", "--max-worker-port=0", "--disable-usage-stats"]
    environment = {**_environment(cluster, number), "CUDA_VISIBLE_DEVICES": ",".join(gpus)}
    log = folder / "start.log"  # not a pipe, which the daemons would keep open
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
        lines = log.read_text(errors="replace").strip().splitlines() or ["no message"]
        raise RuntimeError(
            f"node {number + 1} of {cluster.nodes} did not start ({lines[-1].strip()}); the "
            "started nodes are stopped"
        )


def kill_node(cluster: LocalCluster, number: int) -> int:
    """Kill all processes of a node at once, like a power loss, and return their number."""
    pids = processes.find_marked(_node_mark(cluster, number), processes.NODE_MARK)
    processes.kill(pids)
    return len(pids)


def _node_mark(cluster: LocalCluster, number: int) -> str:
    return f"{cluster.mark}-{number}"


def _where(cluster: LocalCluster, number: int) -> list[str]:
    """Return the options of `ray start` for a node's addresses and ports."""
    if number:
        # 0.0.0.0 reaches loopback too, and Ray does not replace it as it does 127.0.0.1.
        head = f"0.0.0.0:{_port(cluster.ray_address)}"
        return [f"--address={head}", "--dashboard-agent-listen-port=0"]
    client, agent = free_ports(2)
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
    """Return the environment of a node, which every job and worker on it inherits."""
    others = ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS")
    inherited = {k: v for k, v in os.environ.items() if k not in others}
    return {
        **inherited,
        MODE: "token",
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "RAY_USAGE_STATS_ENABLED": "0",
        processes.MARK: cluster.mark,
        processes.NODE_MARK: _node_mark(cluster, number),
        # By default Ray refuses to start a second node on the same machine.
        **{name: "1" if number else value for name, value in LOOPBACK.items()},
    }


def free_ports(count: int) -> list[int]:
    """Return `count` distinct free ports of the loopback address."""
    free = [socket.socket() for _ in range(count)]
    try:
        for one in free:
            one.bind((HOST, 0))
        return [one.getsockname()[1] for one in free]
    finally:
        for one in free:
            one.close()


def _gpus() -> list[str]:
    """Return the ids of this process's GPUs, each of which belongs to one node."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [gpu for gpu in named.split(",") if gpu not in ("", "-1")]
    from cotbert_core.training.devices import usable_gpus  # slow

    return [str(number) for number in range(usable_gpus())]


def _store_bytes(nodes: int) -> int:
    """Return the size in bytes of each node's object store; together half of the free memory."""
    memory = Path("/dev/shm")  # not on macOS, where Ray keeps the objects in /tmp
    free = shutil.disk_usage(memory if memory.is_dir() else "/tmp").free
    return max(100 << 20, min(STORE_BYTES, free // (2 * nodes)))
