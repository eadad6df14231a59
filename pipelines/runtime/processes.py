"""Find and end the processes of one Ray instance or cluster (Linux).

Ray's daemons detach from the process that started them but keep its environment, so a variable with
a random value marks them. Ray's workers overwrite their environment but are the daemons' children.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

MARK, NODE_MARK = "COTBERT_CLUSTER", "COTBERT_CLUSTER_NODE"
GRACE_SECONDS = 3.0
GONE_SECONDS = 10.0


def find_marked(mark: str, name: str = MARK) -> set[int]:
    """Return the live processes with this mark and their descendants, except this process.

    name: MARK for the processes of a cluster, NODE_MARK for the processes of one of its nodes.
    """
    parents = _parents()
    entry = f"{name}={mark}".encode()
    found = {pid for pid in parents if entry in _read(pid, "environ").split(b"\0")}
    return (found | _below(found, parents)) - {os.getpid()}


def filter_by_title(pids: Iterable[int], *titles: str) -> set[int]:
    """Return the processes whose titles begin with one of `titles`, such as `ray::NAME`."""
    wanted = tuple(title.encode() for title in titles)
    return {pid for pid in pids if _read(pid, "cmdline").startswith(wanted)}


def descendants(pid: int) -> set[int]:
    """Return the live descendants of a process."""
    return _below({pid}, _parents())


def ray_processes() -> set[int]:
    """Return the live processes of the Ray instance that this process has started."""
    commands = {pid: _read(pid, "cmdline") for pid in descendants(os.getpid())}
    return {
        pid for pid, words in commands.items() if words.startswith(b"ray::") or b"/ray/" in words
    }


def kill(pids: set[int]) -> None:
    """Kill the processes and wait until they are gone, at most GONE_SECONDS."""
    pids = pids & _parents().keys()
    _signal(pids, signal.SIGKILL)
    limit = time.monotonic() + GONE_SECONDS
    while pids & _parents().keys() and time.monotonic() < limit:
        time.sleep(0.05)


def _below(pids: set[int], parents: Mapping[int, int]) -> set[int]:
    found = set(pids)
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - pids


def _read(pid: int, name: str) -> bytes:
    """Return a file of a process; nothing if it has ended or is another user's."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _parents() -> dict[int, int]:
    """Return the parent of each live process."""
    parents = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = file.read_text(errors="replace").rpartition(") ")[2].split()[:2]
        except OSError:
            continue
        if state not in "ZX":
            parents[int(file.parent.name)] = int(parent)
    return parents


def terminate(mark: str) -> int:
    """End all processes with the mark, by SIGTERM and then SIGKILL; return their number."""
    known = find_marked(mark)
    _signal(known, signal.SIGTERM)
    if left := _wait(known, mark, GRACE_SECONDS):
        _signal(left, signal.SIGKILL)
        if left := _wait(left, mark, GONE_SECONDS):
            raise RuntimeError(f"the processes {sorted(left)} of the cluster could not be ended")
    return len(known)


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _wait(pids: set[int], mark: str, seconds: float) -> set[int]:
    """Return the processes that are still alive after `seconds`, and their descendants."""
    limit = time.monotonic() + seconds
    while left := (pids & _parents().keys()) | find_marked(mark):
        if time.monotonic() > limit:
            return left
        time.sleep(0.1)
    return set()
