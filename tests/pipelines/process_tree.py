"""Which processes a job has started, as Linux tells: the ones a test kills."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from forked import above


def below(pid: int, name: str) -> list[int]:
    """Processes that `pid` started, itself or by others, whose names begin so."""
    parents, forked = {}, above()
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            shown, _, rest = status.read_text().partition(" (")[2].rpartition(") ")
        except OSError:  # it has ended
            continue
        number = int(status.parent.name)
        parents[number] = forked.get(number, int(rest.split()[1])), shown
    return [
        p for p, (_, shown) in parents.items() if shown.startswith(name) and _has(p, pid, parents)
    ]


def kill_first(pid: int, name: str, seconds: float = 300.0) -> None:
    """SIGKILL the first process that `pid` starts, itself or by others, whose name begins so."""
    limit = time.monotonic() + seconds
    while not (begun := below(pid, name)):
        assert time.monotonic() < limit, f"no {name} began"
        time.sleep(0.05)
    os.kill(begun[0], signal.SIGKILL)


def wait_for_end(pids: Iterable[int], seconds: float = 60.0) -> None:
    """Wait until these processes have ended; of a killed job they live a little longer."""
    limit = time.monotonic() + seconds
    while alive := [pid for pid in pids if _is_alive(pid)]:
        assert time.monotonic() < limit, f"{alive} are still there"
        time.sleep(0.05)


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2]
    except OSError:
        return False
    return not state.startswith("Z")


def _has(process: int, above: int, parents: dict[int, tuple[int, str]]) -> bool:
    while process in parents:
        process = parents[process][0]
        if process == above:
            return True
    return False
