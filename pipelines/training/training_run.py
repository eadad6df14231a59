"""What a training run is, as its driver and its workers know it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cotbert_core.settings import TrainSettings
from pipelines.options.shared import MODEL_ALONE, KeptFiles
from pipelines.storage.corpus import Corpus
from pipelines.training.dev_sets import DevSets
from pipelines.training.metrics_log import METRICS_FILE

CHECKPOINTS = "checkpoints"


@dataclass(frozen=True)
class TrainingRun:
    """The settings, data and folders of a run.

    early_stopping: whether a sweep decides after every dev check if the run continues
    (pipelines.training.early_stopping). check_before: whether there is a dev check before the first
    step. part_rows: number of rows of each part of a streamed corpus. profile: folder of the
    profile. kept: what stays after the run has ended well, besides the model.
    """

    settings: TrainSettings
    corpus: Corpus
    dev: DevSets
    output: Path
    early_stopping: bool = False
    check_before: bool = True
    part_rows: tuple[int, ...] | None = None
    profile: Path | None = None
    kept: KeptFiles = MODEL_ALONE

    @property
    def checkpoints(self) -> Path:
        return self.output / CHECKPOINTS

    @property
    def metrics_file(self) -> Path:
        return self.output / METRICS_FILE
