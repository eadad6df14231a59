"""What a sweep thinks of a run, asked after every dev check: whether it may go on.

Ray Tune would stop a trial by killing its process. Its workers' cores are then given back by a
helper of Ray Train that needs Ray's dashboard, which a session on one machine does without, and the
next trial would wait for ever. A run that is told to stop ends as every run does: with its model,
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


def answer_run(folder: Path, step: int, *, go_on: bool) -> None:
    """To the run in `folder`, after its dev check at `step`."""
    write_json(folder / DECISION_FILE, {"step": step, "go_on": go_on})


def should_continue(folder: Path, step: int, wait: float = WAIT_SECONDS) -> bool:
    """The verdict after `step`, waited for; yes where none comes."""
    until = time.monotonic() + wait
    while True:
        verdict = read_json(folder / DECISION_FILE) if (folder / DECISION_FILE).is_file() else None
        if verdict is not None and (verdict["step"] >= step or not verdict["go_on"]):
            return bool(verdict["go_on"])
        if time.monotonic() >= until:
            return True
        time.sleep(POLL_SECONDS)


def was_stopped(folder: Path) -> bool:
    path = folder / DECISION_FILE
    return path.is_file() and not read_json(path)["go_on"]
