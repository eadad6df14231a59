"""Ask the sweep after every dev check of a run whether the run continues.

Ray Tune would stop a trial by killing its process. Its workers' cores would then be released by a
helper of Ray Train that needs Ray's dashboard. A session on one machine has no dashboard, so the
next trial would wait forever. A run that is stopped ends as every run does: with its model,
its report and an MLflow run that has ended.
"""

from __future__ import annotations

import time
from pathlib import Path

from cotbert_core.files import read_json, write_json

DECISION_FILE = "verdict.json"
POLL_SECONDS = 0.1
# A sweep answers within a second or two; one that does not answer does not hold up a run.
WAIT_SECONDS = 60.0


def answer_run(folder: Path, step: int, *, continues: bool) -> None:
    """Write whether the run in `folder` continues after its dev check at `step`."""
    write_json(folder / DECISION_FILE, {"step": step, "go_on": continues})


def should_continue(folder: Path, step: int, wait: float = WAIT_SECONDS) -> bool:
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
