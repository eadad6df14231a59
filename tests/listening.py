"""What the processes of a command listen at, as Linux tells: /proc/net joined with open files."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

LISTEN = "0A"  # a socket's state in /proc/net/tcp


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
    pids = set(pids)
    if not pids:
        return
    tables = _tables()
    for pid in pids:
        for inode in _sockets(pid) & tables.keys():
            yield Listener(_title(pid), *tables[inode])


def _tables() -> dict[int, tuple[str, int]]:
    """Inode of each listening socket of the machine -> address and port."""
    found = {}
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == LISTEN:
                host, _, port = words[1].partition(":")
                found[int(words[9])] = (_address(host), int(port, 16))
    return found


def _address(digits: str) -> str:
    """An address of /proc/net: words of 32 bits in the machine's byte order, in hexadecimal."""
    words = [int(digits[at : at + 8], 16) for at in range(0, len(digits), 8)]
    packed = struct.pack(f"={len(words)}I", *words)
    return socket.inet_ntop(socket.AF_INET if len(words) == 1 else socket.AF_INET6, packed)


def _sockets(pid: int) -> set[int]:
    """Inodes of the sockets that a process has open."""
    found = set()
    for file in Path(f"/proc/{pid}/fd").glob("*"):
        with suppress(OSError):  # closed meanwhile: the others are still there
            if match := re.fullmatch(r"socket:\[(\d+)\]", os.readlink(file)):
                found.add(int(match[1]))
    return found


def _title(pid: int) -> str:
    """The first words of a process's command line, without the folders of its program."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    return " ".join(Path(word.decode(errors="replace")).name for word in words[:3]).strip()
