"""Commands of `cotbert` in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.harness import DisagreementError


def start_command(home: Path, *words: object, **popen: Any) -> subprocess.Popen[Any]:
    """Start a command; its MLflow store is a file in `home`, and its output is discarded."""
    command = [sys.executable, "-m", "pipelines.cli", *map(str, words)]
    environment = {**os.environ, "MLFLOW_TRACKING_URI": f"sqlite:///{home / 'mlflow.db'}"}
    return subprocess.Popen(command, env=environment, **{"stdout": subprocess.DEVNULL, **popen})


def timed(home: Path, *words: object) -> float:
    """Run a command to its end and return its seconds, with all its imports and starts."""
    started = time.perf_counter()
    status = start_command(home, *words).wait()
    if status:
        raise DisagreementError(f"cotbert {words[0]} ended with status {status}")
    return time.perf_counter() - started


def sets(settings: Mapping[str, object]) -> list[str]:
    """Return settings as options of a command."""
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


def kill_first(pids: Iterable[int]) -> bool:
    """Kill one of the processes; return whether any was still there."""
    for pid in sorted(pids):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            return True
    return False


def peak_mib(process: int) -> float:
    """Return the peak memory of a process in MiB, 0 if it has ended."""
    try:
        status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    except OSError:
        return 0.0
    peaks = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
    return int(peaks[0]) / 1024 if peaks else 0.0
