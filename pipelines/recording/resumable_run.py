"""The MLflow run of a job whose output folder is still under way."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from pipelines.recording import tracking
from pipelines.storage.resumable_output import ResumableOutput


def resumable_run(
    work: ResumableOutput, job: str, params: Mapping[str, Any], parent: str | None
) -> AbstractContextManager[tracking.Run]:
    """The job's run in MLflow, which is the same one after a kill."""
    return tracking.tracked_run(
        job,
        params,
        parent=parent,
        home=work.scratch,
        outbox=work.output,
        outbox_name=work.final,
    )
