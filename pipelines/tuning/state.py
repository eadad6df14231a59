"""The state of a trial, read from its folder, which is all that a sweep stores about it.

A trial's folder is a complete output of `cotbert train`, with `failed.json` if the trial failed.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cotbert_core.encoder.locations import MODEL_FOLDER
from cotbert_core.files import read_json
from cotbert_core.training.dev_scores import sort_key
from pipelines.recording.dev_metric import DevMetric, metric_in
from pipelines.storage.output_folder import RESULT_FILE, earlier_run
from pipelines.training.early_stopping import was_stopped
from pipelines.training.metrics_log import METRICS_FILE, read_rows
from pipelines.tuning.trial_plan import SEED, Trial

TRIALS_FOLDER = "trials"
FAILED_FILE = "failed.json"
STATUSES = FINISHED, STOPPED, FAILED, UNFINISHED = "finished", "stopped", "failed", "unfinished"
# Trials with these statuses are not run again.
ENDED = (FINISHED, STOPPED)
# The keys of a trial's training time.
WORK = ("step_seconds", "check_seconds")


def model_of(output: Path, name: str) -> Path:
    """Return the model folder of a trial. output: the folder of the sweep or adaptation."""
    return output / TRIALS_FOLDER / name / MODEL_FOLDER


def status_of(folder: Path) -> str:
    """Return the status of a trial; a trial that ended after a request to stop is `stopped`."""
    if (folder / RESULT_FILE).is_file():
        return STOPPED if was_stopped(folder) else FINISHED
    return FAILED if (folder / FAILED_FILE).is_file() else UNFINISHED


def trained_scores(folder: Path) -> dict[int, float]:
    """Return the dev score at each checked step, without the one before training."""
    return {step: score for step, score in _scores(_rows(folder)).items() if step}


def _rows(folder: Path) -> dict[int, dict[str, float]]:
    path = folder / METRICS_FILE
    return read_rows(path) if path.is_file() else {}


def _scores(rows: Mapping[int, Mapping[str, float]]) -> dict[int, float]:
    named = {step: (row, metric_in(row).name) for step, row in rows.items()}
    return {step: row[name] for step, (row, name) in named.items() if name in row}


def trial_row(trial: Trial, folder: Path, metric: DevMetric) -> dict[str, Any]:
    """Return a trial's entry in result.json. metric: that of the sweep's dev sets."""
    rows = _rows(folder)
    scores = _scores(rows)
    before = scores.pop(0, None)
    best = max(scores, key=lambda step: sort_key(scores[step]), default=None)
    status = status_of(folder)
    if status in ENDED:  # the best checkpoint may have been refused by the disk, or damaged
        best = read_json(folder / RESULT_FILE).get("best_step", best)
    work = sum(row.get(key, 0.0) for row in rows.values() for key in WORK)
    return {
        "name": trial.name,
        "settings": {k: v for k, v in trial.sample.items() if k != SEED},
        "seed": trial.settings.seed,
        "status": status,
        metric.name: None if best is None else scores[best],
        metric.before: before,
        "best_step": best,
        "steps": max(rows, default=None),
        "training_seconds": round(work, 3),
        "error": read_json(folder / FAILED_FILE)["error"] if status == FAILED else None,
        "mlflow_run_id": earlier_run(folder),
    }


def best_of(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the trial with the best dev score among those that finished or were stopped.

    The model of a stopped trial is complete, and its best step may be the best of all.
    """
    ended = [row for row in rows if row["status"] in ENDED]
    return max(ended, key=lambda row: sort_key(float(row[metric_in(row).name])), default=None)


def best_settings(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the trials of the settings with the best mean over their seeds.

    Settings of which all trials have ended come before others, whose mean may be a lucky seed.
    """
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(repr(row["settings"]), []).append(row)

    def rank(group: Sequence[Mapping[str, Any]]) -> tuple[bool, float]:
        ended = [float(row[metric_in(row).name]) for row in group if row["status"] in ENDED]
        mean = statistics.fmean(map(sort_key, ended)) if ended else -math.inf
        return len(ended) == len(group), mean

    return max(groups.values(), key=rank, default=[])
