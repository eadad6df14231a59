"""What Ray Tune runs as a trial: a training run of its own, whose dev scores it hears.

It is `cotbert train` in the trial's folder, so a trial that was killed goes on from its checkpoint,
in the same MLflow run, and one that is finished is not trained again.
"""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cotbert_core.evaluation import Pairs
from cotbert_core.files import write_json
from cotbert_core.settings import TrainSettings, build
from pipelines.tuning.state import FAILED_FILE, TRIAL_FILE, has_begun

# What a trial is given: its name, and its settings as plain values.
TRIAL, SETTINGS = "trial", "settings"


@dataclass(frozen=True)
class Sweep:
    """What all trials share. judged: whether bad ones are stopped."""

    folder: str
    corpus: str
    parent: str | None
    tracking_uri: str
    judged: bool
    verbose: bool


def run_trial(config: dict[str, Any], sweep: Sweep, dev: dict[str, Pairs]) -> None:
    """One trial, in a process of Ray Tune's. config: {TRIAL: its name, SETTINGS: its settings}."""
    started = time.monotonic()
    # Ray Tune's processes have a folder of their own, where no store is.
    os.environ["MLFLOW_TRACKING_URI"] = sweep.tracking_uri
    folder = Path(sweep.folder) / config[TRIAL]
    if not has_begun(folder):  # killed before it had settings: nothing to go on with
        shutil.rmtree(folder, ignore_errors=True)
    try:
        _train(config, folder, sweep, dev)
    except Exception as error:  # Ray Tune hands on that a trial failed, not why
        write_json(folder / FAILED_FILE, {"error": one_line(error)})
        raise
    write_json(folder / TRIAL_FILE, {"seconds": round(time.monotonic() - started, 3)})


def _train(config: dict[str, Any], folder: Path, sweep: Sweep, dev: dict[str, Pairs]) -> None:
    from ray.tune.integration.ray_train import TuneReportCallback

    from pipelines.corpus import Corpus
    from pipelines.train import train

    train(
        build(TrainSettings, config[SETTINGS]),
        Corpus.open(sweep.corpus),
        dev,
        folder,
        resume=has_begun(folder),
        verbose=sweep.verbose,
        parent=sweep.parent,
        tags={TRIAL: config[TRIAL]},
        callbacks=[TuneReportCallback()],
        judged=sweep.judged,
    )


def one_line(error: object) -> str:
    """The last line of what went wrong."""
    lines = str(error).strip().splitlines()
    return (lines[-1] if lines else type(error).__name__)[:500]
