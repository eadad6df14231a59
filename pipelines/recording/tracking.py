"""Track each job as an MLflow run. A failure of the store is a warning and never ends a job.

The run is in the store of MLFLOW_TRACKING_URI, by default in ./mlflow.db with ./mlartifacts. Every
call is made on the driver, by a client with an explicit run id. Records that cannot be sent wait in
the job's offline queue (pipelines.recording.offline_queue), or are lost if the job has none.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

from cotbert_core.files import write_text
from cotbert_core.messages.redaction import redact
from pipelines.recording.artifacts import RefusedError
from pipelines.recording.mlflow_run import Run, retried
from pipelines.recording.offline_queue import OfflineQueue
from pipelines.recording.records import (
    ERROR_TAG,
    EXPERIMENT,
    Record,
    UnknownRunError,
    create_record,
    create_run,
    is_key,
    now,
    send,
)
from pipelines.recording.store import check_outside, connect, shown_uri, tracking_uri
from pipelines.recording.upload_worker import UploadWorker
from pipelines.runtime.progress import say
from pipelines.storage.output_folder import RUN_FILE, earlier_run
from pipelines.storage.resumable_output import ResumableOutput

__all__ = ["EXPERIMENT", "Run", "commit", "shown_uri", "tracked_run", "tracking_uri"]

COMMIT = "COTBERT_COMMIT"
VERSIONED = ("cotbert", "ray", "torch", "transformers", "mlflow", "pyarrow", "numpy")
# MLflow's own tags: a run's description, and its column "Source".
DESCRIPTION_TAG, SOURCE_TAG = "mlflow.note.content", "mlflow.source.name"


@contextmanager
def tracked_run(
    job: str,
    params: Mapping[str, Any],
    *,
    name: str | None = None,
    about: str = "",
    parent: str | None = None,
    home: Path | None = None,
    queue_folder: Path | None = None,
    final_folder: Path | None = None,
    output: Path | None = None,
) -> Iterator[Run]:
    """Open a run for the `with` block; its status is FAILED if the block raises.

    name: the run's name, by default the names of the job and its output folder. about: description
    of the run in a sentence. parent: id or key of the parent run. home: folder with the
    run id file, by which a resumed job continues the same run. queue_folder: folder of the offline
    queue, by default `home`. final_folder: the path of queue_folder after the job has succeeded.
    output: the output of a job without such folders.
    """
    run_id = earlier_run(home) if home is not None else None
    queue_folder = queue_folder or home
    output = final_folder or home or output
    create = create_record(name or run_name(job, output))
    if queue_folder is not None:
        create["parent"] = parent
        run = _begin(create, run_id, OfflineQueue(queue_folder))
    else:
        create["parent"] = None if is_key(parent) else parent  # not in the store yet
        opened = retried(lambda: _open(create, run_id))
        if opened is None:
            say("warning: MLflow has no record of this job")
        run = Run(*(opened or (None, None)))
    if home is not None:
        write_text(home / RUN_FILE, run.id or "")
    # MLflow refuses to change a param, and the folder of a resumed job may have been moved.
    run.params({**params, **({"output": output} if output and run.key != run_id else {})})
    described = {SOURCE_TAG: f"cotbert {job}", **({DESCRIPTION_TAG: about} if about else {})}
    run.tags({"job": job, "commit": commit(), **_versions(), **described})
    try:
        yield run
    except BaseException as error:
        killed = isinstance(error, KeyboardInterrupt)  # its text is advice to the user
        why = "interrupted" if killed else redact(error)[:500] or type(error).__name__
        run.tags({ERROR_TAG: why})
        run.end("KILLED" if killed else "FAILED")
        raise
    run.end("FINISHED", final_folder)


def resumable_run(
    work: ResumableOutput,
    job: str,
    params: Mapping[str, Any],
    about: str,
    parent: str | None = None,
) -> AbstractContextManager[Run]:
    """Open the MLflow run of a job with a resumable output; a killed job continues the same run.

    The runs of jobs whose unfinished work was discarded are ended. Raises UserError for a store in
    the output, whose place the finished folder takes.
    """
    check_outside(work.final)
    for run_id in work.discarded:
        end_run(run_id, "KILLED")
    return tracked_run(
        job,
        params,
        about=about,
        parent=parent,
        home=work.scratch,
        queue_folder=work.output,
        final_folder=work.final,
    )


def run_name(*parts: str | Path | None) -> str:
    """Return a run's name, e.g. `simcse-base / all-MiniLM-L6-v2 / mine`; paths give their name."""
    return " / ".join(part.name if isinstance(part, Path) else part for part in parts if part)


def end_run(run_id: str, status: str) -> None:
    """End the run of a job that cannot do so itself; a failure of the store is a warning."""
    retried(lambda: send(connect(), run_id, {"kind": "end", "status": status, "time": now()}))


def end_lost_children(run_id: str) -> None:
    """End the children of a run that a killed process has left running, and that no later one
    continues; a failure of the store is a warning."""

    def end_all() -> None:
        client = connect()
        of_run = f"tags.`mlflow.parentRunId` = '{run_id}' and attributes.status = 'RUNNING'"
        for child in client.search_runs([client.get_run(run_id).info.experiment_id], of_run):
            client.set_terminated(child.info.run_id, "KILLED")

    retried(end_all)


def commit() -> str:
    """Return the commit of the running code, or 'released' outside a checkout or without git.

    A submitted job has the code alone, and is given its commit.
    """
    if given := os.environ.get(COMMIT):
        return given
    here = Path(__file__)

    def git(*words: str) -> str:
        command = ["git", "-C", str(here.parent), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        # Fails in an environment inside a user's own repository, which has another HEAD.
        git("ls-files", "--error-unmatch", here.name)
        return git("rev-parse", "--short=12", "HEAD")
    except (OSError, subprocess.CalledProcessError):
        return "released"


def _begin(create: Record, run_id: str | None, queue: OfflineQueue) -> Run:
    """Return the run of this queue, created now or, if the store does not answer, later."""
    uploads = UploadWorker(queue)
    key, known = queue.latest_run()
    run_id = run_id or known
    started = time.monotonic()
    if queue.empty:  # otherwise the waiting records are sent first
        try:
            client, run = _open(create, run_id, queue)
            return Run(client, run, UploadWorker(queue, client))
        except Exception as error:  # a failure of the store must not end the job
            uploads.pause(error, time.monotonic() - started)
    earlier = run_id or key
    if earlier is None:
        queue.record_run_id(create["run"], None)
        uploads.send(create)
    else:
        uploads.send({"kind": "reopen", "run": earlier, "time": now()})
    return Run(None, earlier or create["run"], uploads)


def _open(create: Record, run_id: str | None, queue: OfflineQueue | None = None) -> tuple[Any, str]:
    """Return a client and the id of the earlier run, or of a new one if the store lacks that."""
    client = connect()
    if run_id is not None:
        try:
            send(client, run_id, {"kind": "reopen"})
            return client, run_id
        except (UnknownRunError, RefusedError):  # another store, or a run deleted in its UI
            say(
                f"note: MLflow at {shown_uri()} lacks the run {run_id} of this job, which "
                "continues in a new one; the default store is in the folder where a job is started"
            )
    parent = create["parent"]
    if queue is not None:
        parent = queue.run_id_of(client, parent)
    return client, create_run(client, create, parent)


def _versions() -> dict[str, str]:
    versions = {}
    for name in VERSIONED:
        try:
            versions[f"version.{name}"] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[f"version.{name}"] = "absent"
    return versions
