"""Which processes a job has started, as Linux tells: the ones a test kills."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable

import pytest
from forked import know_parents

from pipelines.runtime import processes


def below(pid: int, title: str) -> list[int]:
    """Processes that `pid` started, itself or by others, whose titles begin so."""
    with pytest.MonkeyPatch.context() as patch:
        know_parents(patch)
        return sorted(processes.filter_by_title(processes.descendants(pid), title))


def kill_first(pid: int, title: str, seconds: float = 300.0) -> None:
    """SIGKILL the first process that `pid` starts, itself or by others, whose title begins so."""
    limit = time.monotonic() + seconds
    while not (begun := below(pid, title)):
        assert time.monotonic() < limit, f"no {title} began"
        time.sleep(0.05)
    os.kill(begun[0], signal.SIGKILL)


def wait_for_end(pids: Iterable[int], seconds: float = 60.0) -> None:
    """Wait until these processes have ended; of a killed job they live a little longer."""
    limit = time.monotonic() + seconds
    while alive := processes.parents().keys() & set(pids):
        assert time.monotonic() < limit, f"{alive} are still there"
        time.sleep(0.05)
