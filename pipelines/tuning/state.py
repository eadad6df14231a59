"""What has become of a trial, read from its folder: that is all a sweep remembers of it.

A trial's folder is a whole output of `cotbert train`, with `trial.json` (how long it took, and
whether an earlier run had begun it) and, of one that failed, `failed.json` in it.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cotbert_core.files import read_json
from pipelines.recording.tracking import DEV_SPEARMAN
from pipelines.storage.output_folder import RESULT_FILE, SETTINGS_FILE, earlier_run
from pipelines.training.early_stopping import was_stopped
from pipelines.training.metrics_log import METRICS_FILE, read_rows
from pipelines.tuning.trial_plan import SEED, Trial

TRIALS_FOLDER = "trials"
TRIAL_FILE, FAILED_FILE = "trial.json", "failed.json"
FINISHED, STOPPED, FAILED, UNFINISHED = "finished", "stopped", "failed", "unfinished"
# Of these nothing is left to do.
ENDED = (FINISHED, STOPPED)
# Their sum is a trial's own work; the rest of its time went into starting and ending.
WORK = ("step_seconds", "check_seconds")


def status_of(folder: Path) -> str:
    """A trial that was told to stop and has ended is stopped, whatever it has left."""
    if (folder / RESULT_FILE).is_file():
        return STOPPED if was_stopped(folder) else FINISHED
    return FAILED if (folder / FAILED_FILE).is_file() else UNFINISHED


def has_begun(folder: Path) -> bool:
    return (folder / SETTINGS_FILE).is_file()


def dev_scores(folder: Path) -> dict[int, float]:
    """The dev Spearman at each step that was checked."""
    return _scores(_rows(folder))


def _rows(folder: Path) -> dict[int, dict[str, float]]:
    path = folder / METRICS_FILE
    return read_rows(path) if path.is_file() else {}


def _scores(rows: Mapping[int, Mapping[str, float]]) -> dict[int, float]:
    return {step: row[DEV_SPEARMAN] for step, row in rows.items() if DEV_SPEARMAN in row}


def trained_scores(scores: Mapping[int, float]) -> dict[int, float]:
    """Without the score before training."""
    return {step: score for step, score in scores.items() if step}


def trial_row(trial: Trial, folder: Path) -> dict[str, Any]:
    """A trial as result.json tells it."""
    rows = _rows(folder)
    scores = _scores(rows)
    trained = trained_scores(scores)
    best = max(trained, key=lambda step: trained[step]) if trained else None
    status = status_of(folder)
    work = sum(row.get(key, 0.0) for row in rows.values() for key in WORK)
    told = read_json(folder / TRIAL_FILE) if (folder / TRIAL_FILE).is_file() else {}
    return {
        "name": trial.name,
        "settings": {k: v for k, v in trial.sample.items() if k != SEED},
        "seed": trial.settings.seed,
        "status": status,
        "dev_spearman": None if best is None else trained[best],
        "dev_spearman_before": scores.get(0),
        "best_step": best,
        "steps": max(rows, default=None),
        # Of one that was killed and gone on with nobody has seen the whole.
        "seconds": None if told.get("resumed") else told.get("seconds"),
        "training_seconds": round(work, 3),
        "error": read_json(folder / FAILED_FILE)["error"] if status == FAILED else None,
        "mlflow_run_id": earlier_run(folder),
    }


def best_of(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The finished trial with the best dev score."""
    finished = [row for row in rows if row["status"] == FINISHED]
    return max(finished, key=lambda row: float(row["dev_spearman"]), default=None)


def start_seconds(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """Median over the trials that ran in one go of the time that went into no step and no dev
    check."""
    spent = [
        float(row["seconds"]) - float(row["training_seconds"])
        for row in rows
        if row["status"] in ENDED and row["seconds"] is not None
    ]
    return round(statistics.median(spent), 2) if spent else None
