"""A trial of Ray Tune: a training run that reports its dev scores.

It is `cotbert train` in the trial's folder, so a trial that was killed continues from its
checkpoint, in the same MLflow run, and a finished trial is not trained again.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import ray.tune

from cotbert_core.files import write_json
from cotbert_core.messages.redaction import redact
from cotbert_core.settings import TrainSettings, build
from cotbert_core.training.devices import use_device
from pipelines.recording.metric_names import DEV_SCORE
from pipelines.runtime.low_memory import out_of_memory
from pipelines.runtime.progress import is_verbose, set_output
from pipelines.runtime.ray_log import only_in_log
from pipelines.storage.output_folder import SETTINGS_FILE
from pipelines.training.baseline import Baseline
from pipelines.training.dev_sets import DevSets
from pipelines.training.training_run import DEFAULT_OPTIONS, RunOptions
from pipelines.training.worker_process import WorkerProcess
from pipelines.tuning.state import FAILED_FILE

# Keys of a trial's config: its name, its settings as plain values, and the name of its MLflow run.
TRIAL, SETTINGS, RUN_NAME = "trial", "settings", "run_name"
# The key of the step in a trial's reports to Ray Tune.
STEP = "step"
# The trials of a killed sweep live for a few more seconds, and the death of a trial on another
# machine is detected after a minute.
PATIENCE_SECONDS = 90.0
# Ray Tune runs the next trial in the same process, which keeps this object.
_PROCESS = WorkerProcess()


@dataclass(frozen=True)
class Sweep:
    """Settings that all trials share.

    options: without the name, the tags and the baseline of a trial. baselines: by encoder.
    """

    folder: Path
    corpus: Path
    tracking_uri: str = field(repr=False)  # may hold credentials: only passed in memory
    options: RunOptions = DEFAULT_OPTIONS
    verbose: bool = field(default_factory=is_verbose)
    baselines: Mapping[str, Baseline] = field(default_factory=dict)


def run_trial(config: dict[str, Any], sweep: Sweep, dev: DevSets) -> None:
    """Run a trial in a process of Ray Tune, which leaves FAILED_FILE in its folder if it fails.

    config: its name, settings and run's name. No error is raised: Ray Tune would start the trial
    again, as it does when its process has died.
    """
    # Ray Tune's processes have a different current folder, without the default store.
    os.environ["MLFLOW_TRACKING_URI"] = sweep.tracking_uri
    set_output(verbose=sweep.verbose)
    use_device("cpu")  # it sees all GPUs, and the models that it checks would go to the first one
    folder = sweep.folder / config[TRIAL]
    if not (folder / SETTINGS_FILE).is_file():  # a killed trial may have left a folder without it
        shutil.rmtree(folder, ignore_errors=True)
    try:
        _train(config, folder, sweep, dev)
    except Exception as error:
        with nullcontext() if sweep.verbose else only_in_log("ray.tune", sweep.folder.parent):
            logging.getLogger("ray.tune").exception("trial %s failed", config[TRIAL])
        write_json(folder / FAILED_FILE, {"error": one_line(error)})
    # Ray Tune prints to standard output that a trial without any result is completed.
    ray.tune.report({"ended": True})


def _train(config: dict[str, Any], folder: Path, sweep: Sweep, dev: DevSets) -> None:
    from pipelines.storage.corpus import Corpus
    from pipelines.training.train import train

    settings = build(TrainSettings, config[SETTINGS])
    options = replace(
        sweep.options,
        name=config[RUN_NAME],
        tags={TRIAL: config[TRIAL]},
        baseline=sweep.baselines.get(settings.encoder),
    )
    train(
        settings,
        Corpus.open(sweep.corpus),
        dev,
        folder,
        options,
        on_check=_reporter(),
        patience=PATIENCE_SECONDS,
        process=_PROCESS,
    )


def _reporter() -> Callable[[int, float], None]:
    """Return a thread-safe function that reports a dev check to the sweep."""
    from ray.tune.integration.ray_train import TuneReportCallback

    callback = TuneReportCallback()

    def report(step: int, score: float) -> None:
        callback.after_report(None, [{DEV_SCORE: score, STEP: step}], None)

    return report


def one_line(error: object) -> str:
    """Return what an error says of memory, else its last line, without credentials."""
    if low := out_of_memory(error):
        return low
    lines = redact(error).strip().splitlines()
    return (lines[-1] if lines else type(error).__name__)[:500]
