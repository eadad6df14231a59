"""A process group of training workers that listens only on loopback if Ray's node does.

torch's store, through which workers find each other, listens on all interfaces without a token, and
gloo and NCCL listen at the machine's network address. A single-machine Ray does not need that. On a
cluster of several machines Ray Train's process group is unchanged.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from importlib import import_module
from typing import Any

import ray.util
from ray.train.torch import TorchConfig
from torch.distributed import DistNetworkError, TCPStore  # type: ignore[attr-defined]

# Maximum number of connections waiting to be accepted; Linux allows 4,096.
BACKLOG = 4096


class LoopbackTorchConfig(TorchConfig):  # type: ignore[misc]
    """Ray Train's process group, on loopback if the first worker's node is."""

    @property
    def backend_cls(self) -> type[Any]:
        return LoopbackBackend


class LoopbackBackend(TorchConfig().backend_cls):  # type: ignore[misc]
    def on_start(self, worker_group: Any, backend_config: Any) -> None:
        if worker_group.execute_single(0, node_is_on_loopback):
            worker_group.execute(listen_on_loopback)
        super().on_start(worker_group, backend_config)


def node_is_on_loopback() -> bool:
    """Return whether Ray's address of this worker's node is a loopback address."""
    return ipaddress.ip_address(ray.util.get_node_ip_address()).is_loopback


def listen_on_loopback() -> None:
    """Make the process group that this worker joins next listen only on loopback."""
    # The loopback interface is lo on Linux, lo0 elsewhere.
    loopback = next((name for _, name in socket.if_nameindex() if name == "lo"), "lo0")
    os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = loopback
    # Imported by name, since the attribute torch.distributed.rendezvous is a function.
    # private: Ray Train takes only env:// and tcp://, and torch lets nobody replace their handlers
    import_module("torch.distributed.rendezvous").TCPStore = store_on_loopback  # type: ignore[attr-defined]


def store_on_loopback(*, host_name: str, port: int, is_master: bool, **options: Any) -> Any:
    """Return torch's store; the first worker's listens at host_name, not on all interfaces.

    Raises torch's DistNetworkError if the port has been taken meanwhile; the training restarts.
    """
    if is_master:
        family = socket.AF_INET6 if ":" in host_name else socket.AF_INET
        try:
            server = socket.create_server((host_name, port), family=family, backlog=BACKLOG)
        except OSError as error:
            raise DistNetworkError(f"{host_name}:{port}: {error}") from None
        options["master_listen_fd"] = server.detach()
    return TCPStore(host_name=host_name, port=port, is_master=is_master, **options)
