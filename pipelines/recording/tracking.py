"""Track each job as an MLflow run. A failure of the store is a warning and never ends a job.

The run is in the store of MLFLOW_TRACKING_URI, otherwise in ./mlflow.db with ./mlartifacts. Every
call is made on the driver, by a client with an explicit run id. Records that the store does not
accept wait in the job's offline queue (pipelines.recording.offline_queue), or are lost if the job
has none.
"""

from __future__ import annotations

import math
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cotbert_core.files import write_text
from cotbert_core.messages.redaction import redact
from pipelines.recording.offline_queue import BATCH_METRICS, OfflineQueue
from pipelines.recording.store import (
    EXPERIMENT,
    Record,
    UnknownRunError,
    connect,
    create_record,
    create_run,
    is_key,
    now,
    reason,
    send,
    shown_uri,
    tracking_uri,
)
from pipelines.recording.upload_worker import UploadWorker
from pipelines.runtime.progress import say
from pipelines.storage.output_folder import REFUSED_FILE, RUN_FILE, earlier_run

if TYPE_CHECKING:
    from pipelines.storage.corpus import Corpus

__all__ = ["EXPERIMENT", "Run", "commit", "shown_uri", "tracked_run", "tracking_uri"]

LOSS = "loss"
DEV_SPEARMAN = "dev_spearman"
# What a trial reports to Ray Tune: the dev score by which it is chosen, of whichever kind.
DEV_SCORE = "dev_score"
# The dev scores on held-out documents; the first chooses (pipelines.recording.dev_metric).
DEV_FOUND_FIRST, DEV_MRR10 = "dev_found_first", "dev_mrr10"
# The dev scores of the untouched encoder, and its readout (pipelines.training.baseline).
BASELINE, BASELINE_SPEARMAN = "baseline", "baseline_spearman"
# Masked tokens of held-out packed rows that are predicted, in %, after and before training.
DEV_MLM_ACCURACY, BASELINE_MLM_ACCURACY = "dev_mlm_accuracy", "baseline_mlm_accuracy"
BASELINE_FOUND_FIRST, BASELINE_MRR10 = "baseline_found_first", "baseline_mrr10"
# Per training step, over all workers: tokens without padding, the share of padding, model FLOPs
# per second, and model FLOPs utilization (MFU): their share of the workers' measured peak
# (cotbert_core.training.flops).
TOKENS_PER_SECOND = "tokens_per_second"
PADDING_SHARE = "padding_share"
MODEL_FLOPS_PER_SECOND = "model_flops_per_second"
MFU = "flop_use"
# Parts of the metric names of a task in `evaluate` (task_metric), and of two compared models.
SUBSETS = "subsets"
DIFFERENCE, P_VALUE = "difference", "p"
VERSIONED = ("cotbert", "ray", "torch", "transformers", "mlflow", "pyarrow", "numpy")
# MLflow's own tag of a run's description.
DESCRIPTION_TAG = "mlflow.note.content"
# Tries of a call of a job without an offline queue.
RETRIES = 3
RETRY_SECONDS = 2.0


class Run:
    """An MLflow run, or none if the store could not be reached when it should have begun."""

    def __init__(self, client: Any, run: str | None, uploads: UploadWorker | None = None) -> None:
        self._client, self._uploads = client, uploads
        self.key = run
        """The name that child runs use for their parent: the run's id, or its key without an id."""
        self.lost = 0

    @property
    def id(self) -> str | None:
        """The run's id; None while the store does not know the run."""
        if not is_key(self.key):
            return self.key
        assert self._uploads is not None
        run_id = self._uploads.queue.keys().get(str(self.key))
        self.key = run_id or self.key
        return run_id

    def params(self, values: Mapping[str, Any]) -> None:
        """Log settings, each value as text, cut at MLflow's limit of 6,000 characters."""
        pairs = [(key, redact(value)[:6000]) for key, value in values.items()]
        for start in range(0, len(pairs), 100):
            self._send("params", values=dict(pairs[start : start + 100]))

    def metrics(self, values: Mapping[str, float], step: int = 0) -> None:
        """Log numbers at a step."""
        self.steps([(step, values)])

    def steps(self, rows: Sequence[tuple[int, Mapping[str, float]]]) -> None:
        """Log numbers at several steps, in batches of at most 1,000, MLflow's limit."""
        at = now()
        metrics = [(k, _number(v), at, step) for step, row in rows for k, v in row.items()]
        for start in range(0, len(metrics), BATCH_METRICS):
            self._send("metrics", rows=metrics[start : start + BATCH_METRICS])

    def result(self, result: Mapping[str, Any]) -> None:
        """Log the numbers of a job's result."""
        self.metrics({k: v for k, v in result.items() if isinstance(v, (int, float))})

    def tags(self, values: Mapping[str, str]) -> None:
        if values:
            self._send("tags", values={key: redact(value) for key, value in values.items()})

    def dataset(self, corpus: Corpus) -> None:
        """Log the corpus that the run trains on, by its digest."""
        held = {"name": corpus.path.name, "digest": corpus.digest, "path": str(corpus.path)}
        self._send("dataset", **held, rows=len(corpus))

    def model(
        self, folder: Path, params: Mapping[str, Any], metrics: Mapping[str, float], step: int
    ) -> None:
        """Log the encoder that the run made, without its files. step: that of its weights."""
        held = {key: redact(value)[:250] for key, value in params.items()}  # MLflow's limit
        name = folder.parent.name.translate(str.maketrans("/:.%\"'", "------"))  # MLflow's rule
        self._send(
            "model", name=name, folder=str(folder), params=held, metrics=dict(metrics), step=step
        )

    def artifact(self, path: Path, folder: str | None = None) -> None:
        """Log a file, or a whole folder under its own name."""
        location = path.absolute()
        if self._uploads is not None:  # relative, since the queue's folder may be moved
            location = Path(os.path.relpath(location, self._uploads.queue.folder))
        self._send("artifact", path=str(location), folder=folder)

    def end(self, status: str, final_folder: Path | None = None) -> None:
        """End the run. final_folder: the path of the queue's folder after the job's end."""
        self._send("end", status=status)
        if self._uploads is not None:
            self._uploads.flush()
            self._report_waiting(self._uploads.queue, final_folder)
        if self.lost:
            say(f"warning: {self.lost} calls to MLflow failed; their contents are not tracked")

    def _send(self, kind: str, **held: Any) -> None:
        if self.key is None:
            return
        record: Record = {"kind": kind, "run": self.key, "time": now(), **held}
        if self._uploads is None:
            client, run = self._client, self.key
            self.lost += _retried(lambda: send(client, run, record)) is None
            return
        try:
            self._uploads.send(record)
        except OSError as error:  # the queue cannot be written either
            say(f"warning: {self._uploads.queue.path} cannot be written ({error})")
            self.lost += 1

    def _report_waiting(self, queue: OfflineQueue, final_folder: Path | None) -> None:
        if self.id is not None:
            queue.write_run_id()
        if waiting := queue.waiting():
            say(
                f"warning: {waiting} records wait for MLflow: "
                f"`cotbert track-sync {final_folder or queue.folder}` sends them"
            )
        if refused := queue.refused():
            say(f"warning: MLflow refused {refused} records: {queue.folder / REFUSED_FILE}")


@contextmanager
def tracked_run(
    job: str,
    params: Mapping[str, Any],
    *,
    name: str | None = None,
    about: str = "",
    parent: str | None = None,
    tags: Mapping[str, str] = MappingProxyType({}),
    home: Path | None = None,
    queue_folder: Path | None = None,
    final_folder: Path | None = None,
) -> Iterator[Run]:
    """Open a run for the length of the `with` block; its status is FAILED if the block raises.

    name: the run's name, None for the job's and its output folder's. about: what the run does, in a
    sentence. parent: id or key of the parent run. tags: set when the run is created. home: folder
    with the file of the run id, with which a resumed job continues the same run. queue_folder:
    folder for records that the store does not accept. final_folder: the path of queue_folder after
    the job has ended without error.
    """
    run_id = earlier_run(home) if home is not None else None
    output = final_folder or home
    create = create_record(name or run_name(job, output), None, tags)
    if queue_folder is not None:
        create["parent"] = parent
        run = _begin(create, run_id, OfflineQueue(queue_folder))
    else:
        create["parent"] = None if is_key(parent) else parent  # the store does not know it yet
        run = Run(*(_retried(lambda: _open(create, run_id)) or (None, None)))
    if home is not None:
        write_text(home / RUN_FILE, run.id or "")
    # MLflow refuses a param that changes, and the folder of a resumed job may have been moved.
    run.params({**params, **({"output": output} if output and run_id is None else {})})
    described = {DESCRIPTION_TAG: about} if about else {}
    run.tags({"job": job, "commit": commit(), **_versions(), **described})
    try:
        yield run
    except BaseException as error:
        run.tags({"error": redact(error)[:500] or type(error).__name__})
        run.end("KILLED" if isinstance(error, KeyboardInterrupt) else "FAILED")
        raise
    run.end("FINISHED", final_folder)


def run_name(*parts: str | Path | None) -> str:
    """Return a run's name, e.g. `simcse-base / all-MiniLM-L6-v2 / mine`; of paths the last part."""
    return " / ".join(part.name if isinstance(part, Path) else part for part in parts if part)


def end_run(run_id: str, status: str) -> None:
    """End the run of a job that cannot do so itself; a failure of the store is a warning."""
    _retried(lambda: send(connect(), run_id, {"kind": "end", "status": status, "time": now()}))


def task_metric(task: str, name: str, model: str | None = None) -> str:
    """Return the name of a task's metric: STS12.spearman; STS12.subsets.MSRpar for a subset;
    STS12.difference/MODEL for one of several models."""
    return metric_name(f"{task}.{name}" + (f"/{model}" if model is not None else ""))


def metric_name(name: str) -> str:
    """Return a name that MLflow accepts: without brackets and commas."""
    return re.sub(r"[^\w\-./: ]", "", name)


def commit() -> str:
    """Return the commit of the running code, or 'released' if it is not in a checkout."""
    here = Path(__file__).parent
    command = ["git", "-C", str(here), "rev-parse", "--short=12", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "released"


def _begin(create: Record, run_id: str | None, queue: OfflineQueue) -> Run:
    """Return the run of this queue, created now, or later when the store answers."""
    uploads = UploadWorker(queue)
    key, known = queue.latest_run()
    run_id = run_id or known
    started = time.monotonic()
    if queue.empty:  # otherwise waiting records are sent first
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
    """Return a client, and the id of the earlier run if the store still has it, or of a new run."""
    client = connect()
    if run_id is not None:
        try:
            send(client, run_id, {"kind": "reopen"})
            return client, run_id
        except UnknownRunError:
            pass
    parent = create["parent"]
    if queue is not None:
        parent = queue.run_id_of(client, parent)
    return client, create_run(client, create, parent, fresh=True)


def _number(value: float) -> float | str:
    """Return a number in a form that JSON can hold."""
    number = float(value)
    return number if math.isfinite(number) else str(number)


def _versions() -> dict[str, str]:
    versions = {}
    for name in VERSIONED:
        try:
            versions[f"version.{name}"] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[f"version.{name}"] = "absent"
    return versions


def _retried(call: Callable[[], Any]) -> Any:
    """Return the call's result (True for none), or None with a warning if every try failed."""
    for attempt in range(RETRIES):
        try:
            result = call()
            return True if result is None else result
        except Exception as error:  # a failure of the store must not end the job
            why = reason(error)
            if attempt + 1 < RETRIES:
                time.sleep(RETRY_SECONDS)
    say(f"warning: MLflow at {shown_uri()} did not answer ({why})")
    return None
