"""What the processes of a command listen at."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True)
class Listener:
    """A listening TCP socket: who has it open, and its address."""

    title: str
    address: str
    port: int

    @property
    def on_loopback(self) -> bool:
        address = ipaddress.ip_address(self.address)
        mapped = getattr(address, "ipv4_mapped", None)
        return (mapped or address).is_loopback


def listeners(pids: Iterable[int]) -> Iterator[Listener]:
    """The listening TCP sockets, IPv4 and IPv6, of these processes."""
    for pid in pids:
        with suppress(psutil.Error):  # ended meanwhile: the others are still there
            process = psutil.Process(pid)
            # The first words of its command line, without the folders of its program.
            title = " ".join(Path(word).name for word in process.cmdline()[:3]).strip()
            for socket in process.net_connections("tcp"):
                if socket.status == psutil.CONN_LISTEN:
                    yield Listener(title, *socket.laddr)
