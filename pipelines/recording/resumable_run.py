"""The MLflow run of a job that writes a resumable output."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from pipelines.recording import tracking
from pipelines.storage.resumable_output import ResumableOutput


def resumable_run(
    work: ResumableOutput, job: str, params: Mapping[str, Any], parent: str | None, about: str
) -> AbstractContextManager[tracking.Run]:
    """Open the job's MLflow run; a killed job continues the same run."""
    return tracking.tracked_run(
        job,
        params,
        about=about,
        parent=parent,
        home=work.scratch,
        queue_folder=work.output,
        final_folder=work.final,
    )
