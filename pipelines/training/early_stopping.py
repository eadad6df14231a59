"""Cooperative early stopping: after every dev check the sweep decides whether the run continues.

Ray Tune would stop a trial by killing its process. A helper of Ray Train, which needs Ray's
dashboard, would then release its workers' cores; a session on one machine has no dashboard, so the
next trial would wait forever. A stopped run ends like any other, with its model, its report and a
finished MLflow run.
"""

from __future__ import annotations

import time
from pathlib import Path

from cotbert_core.files import read_json, write_json

DECISION_FILE = "verdict.json"
POLL_SECONDS = 0.1
# Timeout of a decision, after which the run continues; a sweep answers within a second or two.
WAIT_SECONDS = 60.0


def answer_run(folder: Path, step: int, *, continues: bool) -> None:
    """Write the decision whether the run in `folder` continues after its dev check at `step`."""
    write_json(folder / DECISION_FILE, {"step": step, "go_on": continues})


def should_continue(folder: Path, step: int, wait: float) -> bool:
    """Wait for the decision after `step` and return it; True if none comes in `wait` seconds."""
    until = time.monotonic() + wait
    while True:
        decision = read_json(folder / DECISION_FILE) if (folder / DECISION_FILE).is_file() else None
        if decision is not None and (decision["step"] >= step or not decision["go_on"]):
            return bool(decision["go_on"])
        if time.monotonic() >= until:
            return True
        time.sleep(POLL_SECONDS)


def was_stopped(folder: Path) -> bool:
    """Return whether the sweep has stopped the run in `folder`."""
    path = folder / DECISION_FILE
    return path.is_file() and not read_json(path)["go_on"]
