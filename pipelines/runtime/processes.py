"""Find and end the processes of one Ray instance or cluster.

Ray's daemons detach from the process that started them but keep its environment, so a variable with
a random value marks them. Ray's workers overwrite their environment but are the daemons' children.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TypeVar

import psutil

MARK, NODE_MARK = "COTBERT_CLUSTER", "COTBERT_CLUSTER_NODE"
GRACE_SECONDS = 3.0
GONE_SECONDS = 10.0
Value = TypeVar("Value")


def find_marked(mark: str, name: str = MARK) -> set[int]:
    """Return the live processes with this mark and their descendants, except this process.

    name: MARK for the processes of a cluster, NODE_MARK for the processes of one of its nodes.
    """
    above = parents()
    variables = {pid: _read(pid, psutil.Process.environ, dict[str, str]()) for pid in above}
    found = {pid for pid, known in variables.items() if known.get(name) == mark}
    return (found | _below(found, above)) - {os.getpid()}


def filter_by_title(pids: Iterable[int], *titles: str) -> set[int]:
    """Return the processes whose titles begin with one of `titles`, such as `ray::NAME`."""
    return {pid for pid in pids if _title(pid).startswith(titles)}


def descendants(pid: int) -> set[int]:
    """Return the live descendants of a process."""
    return _below({pid}, parents())


def ray_processes() -> set[int]:
    """Return the live processes of the Ray instance that this process has started."""
    titles = {pid: _title(pid) for pid in descendants(os.getpid())}
    return {pid for pid, title in titles.items() if title.startswith("ray::") or "/ray/" in title}


def parents() -> dict[int, int]:
    """Return the parent of each live process."""
    ended = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    found = [one.info for one in psutil.process_iter(["pid", "ppid", "status"])]
    return {one["pid"]: one["ppid"] for one in found if one["status"] not in ended}


def terminate(mark: str) -> int:
    """End all processes with the mark, by SIGTERM and then SIGKILL; return their number."""
    known = left = find_marked(mark)
    for number, seconds in ((signal.SIGTERM, GRACE_SECONDS), (signal.SIGKILL, GONE_SECONDS)):
        left = _end(left, number, seconds) | find_marked(mark)
    if left:
        raise RuntimeError(f"the processes {sorted(left)} of the cluster could not be ended")
    return len(known)


def kill(pids: set[int]) -> None:
    """Kill the processes and wait until they are gone, at most GONE_SECONDS."""
    _end(pids, signal.SIGKILL, GONE_SECONDS)


def _end(pids: set[int], number: signal.Signals, seconds: float) -> set[int]:
    """Send a signal to the processes; return those that are still alive after `seconds`."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
    limit = time.monotonic() + seconds
    # Not psutil.wait_procs, for which a process that nobody waits for stays alive.
    while (left := pids & parents().keys()) and time.monotonic() < limit:
        time.sleep(0.05)
    return left


def _below(pids: set[int], above: Mapping[int, int]) -> set[int]:
    found = set(pids)
    while more := {pid for pid, parent in above.items() if parent in found} - found:
        found |= more
    return found - pids


def _title(pid: int) -> str:
    return " ".join(_read(pid, psutil.Process.cmdline, list[str]()))


def _read(pid: int, read: Callable[[psutil.Process], Value], missing: Value) -> Value:
    """Return what is known of a process; `missing` if it has ended or is another user's."""
    try:
        return read(psutil.Process(pid))
    except psutil.Error:
        return missing
