"""What a training run is, as its driver and its workers know it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cotbert_core.settings import TrainSettings
from pipelines.options.shared import MODEL_ALONE, KeptFiles
from pipelines.storage.corpus import Corpus
from pipelines.training import profiling
from pipelines.training.baseline import Baseline
from pipelines.training.dev_sets import DevSets
from pipelines.training.metrics_log import METRICS_FILE

CHECKPOINTS = "checkpoints"


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a run is recorded, checked and kept; its settings alone decide what it learns.

    recipe: the one that the settings come from. parent, name, tags: those of its MLflow run.
    baseline: that of the settings' encoder on the dev sets; None to compute it. early_stopping:
    whether a sweep decides after every dev check if the run continues
    (pipelines.training.early_stopping). check_before: whether there is a dev check before the first
    step. profile: whether to write a profile (pipelines.training.profiling). kept: what stays after
    the run has ended well, besides the model.
    """

    recipe: str = ""
    parent: str | None = None
    name: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    baseline: Baseline | None = None
    early_stopping: bool = False
    check_before: bool = True
    profile: bool = False
    kept: KeptFiles = MODEL_ALONE


DEFAULT_OPTIONS = RunOptions()


@dataclass(frozen=True)
class TrainingRun:
    """The settings, data, output folder and options of a run.

    part_rows: number of rows of each part of a streamed corpus.
    """

    settings: TrainSettings
    corpus: Corpus
    dev: DevSets
    output: Path
    options: RunOptions = DEFAULT_OPTIONS
    part_rows: tuple[int, ...] | None = None

    @property
    def profile(self) -> Path | None:
        """The folder of the profile, if one is written."""
        return self.output / profiling.FOLDER if self.options.profile else None

    @property
    def checkpoints(self) -> Path:
        return self.output / CHECKPOINTS

    @property
    def metrics_file(self) -> Path:
        return self.output / METRICS_FILE
