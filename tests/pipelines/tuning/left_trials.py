"""The folder that a trial leaves behind, for tests of what reads it."""

from __future__ import annotations

import json

from cotbert_core.files import write_json
from pipelines.training.early_stopping import answer_run


def leave_trial(folder, name, scores, status="finished"):
    """Write the files of a trial.

    scores: dev score by step. status: finished, stopped, failed, unfinished.
    """
    home = folder / name
    home.mkdir(parents=True, exist_ok=True)
    if status == "failed":
        write_json(home / "failed.json", {"error": "loss"})
        return
    lines = [json.dumps({"step": step, "dev_spearman": value}) for step, value in scores.items()]
    (home / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    if status != "unfinished":
        write_json(home / "result.json", {})
    if status == "stopped":
        answer_run(home, max(scores), continues=False)
