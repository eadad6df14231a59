"""The cores of this machine that a job may use."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")


def available_cores() -> int:
    """Return how many cores this process may use: no more than a container's quota, at least one.

    A quota is rounded down, as by Ray, which would however offer no core at all below one.
    """
    return max(1, int(min(_own_cores(), _quota())))


def _own_cores() -> int:
    """Return how many cores the system lets this process use; macOS knows no affinity."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _quota() -> float:
    """Return the cores of this container's quota, such as of `docker run --cpus`; inf for none."""
    with suppress(OSError, ValueError):  # cgroup v2; ValueError: "max", no quota
        share, period = map(int, (CGROUPS / "cpu.max").read_text().split())
        return share / period
    with suppress(OSError, ValueError):  # cgroup v1; -1: no quota
        share = int((CGROUPS / "cpu" / "cpu.cfs_quota_us").read_text())
        period = int((CGROUPS / "cpu" / "cpu.cfs_period_us").read_text())
        if share > 0:
            return share / period
    return math.inf
