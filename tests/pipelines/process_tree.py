"""Which processes a job has started, as Linux tells: the ones a test kills."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable

import pytest
from forked import know_parents
from waiting import until

from pipelines.runtime import processes


def below(pid: int, title: str) -> list[int]:
    """Processes that `pid` started, itself or by others, whose titles begin so."""
    with pytest.MonkeyPatch.context() as patch:
        know_parents(patch)
        return sorted(processes.filter_by_title(processes.descendants(pid), title))


def kill_first(pid: int, title: str, seconds: float = 300.0) -> None:
    """SIGKILL the first process that `pid` starts, itself or by others, whose title begins so."""
    os.kill(until(lambda: below(pid, title), seconds)[0], signal.SIGKILL)


def wait_for_end(pids: Iterable[int], seconds: float = 60.0) -> None:
    """Wait until these processes have ended; of a killed job they live a little longer."""
    known = set(pids)
    until(lambda: not processes.parents().keys() & known, seconds)
