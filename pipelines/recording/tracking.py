"""MLflow: one run per job. A tracking failure is a warning and never a job's end.

The run lives in the store of MLFLOW_TRACKING_URI, else in ./mlflow.db with ./mlartifacts beside
it. Every call goes through a client with an explicit run id, on the driver alone. What the store
does not take waits in the job's outbox (pipelines/outbox.py), or is lost where a job has none.
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
from typing import Any

from cotbert_core.files import write_text
from cotbert_core.messages.redaction import redact
from pipelines.recording.offline_queue import BATCH_METRICS, OfflineQueue
from pipelines.recording.store import (
    EXPERIMENT,
    Record,
    UnknownRunError,
    connect,
    create_run,
    creation,
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

__all__ = ["EXPERIMENT", "Run", "commit", "shown_uri", "tracked_run", "tracking_uri"]

LOSS = "loss"
DEV_SPEARMAN = "dev_spearman"
# The dev Spearman of the untouched encoder, and how it is read (pipelines.training.baseline).
BASELINE, BASELINE_SPEARMAN = "baseline", "baseline_spearman"
TEST_SPEARMAN = "test_spearman"
ALIGNMENT = "alignment"
UNIFORMITY = "uniformity"
SENTENCES_PER_SECOND = "sentences_per_second"
# Of a training step, over all workers: real tokens, the share of padding, model FLOPs and their
# share of what the workers' cores or GPUs reach in a large product (cotbert_core.training.flops).
TOKENS_PER_SECOND = "tokens_per_second"
PADDING_SHARE = "padding_share"
MODEL_FLOPS_PER_SECOND = "model_flops_per_second"
FLOP_USE = "flop_use"
# Of a task in `evaluate`, see task_metric; of two models: DIFFERENCE and P_VALUE.
SUBSETS = "subsets"
DIFFERENCE, P_VALUE = "difference", "p"
VERSIONED = ("cotbert", "ray", "torch", "transformers", "mlflow", "pyarrow", "numpy")
# Of a job without an outbox.
RETRIES = 3
RETRY_SECONDS = 2.0


class Run:
    """One MLflow run, or none if the store could not be reached when it should have begun."""

    def __init__(self, client: Any, run: str | None, courier: UploadWorker | None = None) -> None:
        self._client, self._courier = client, courier
        self.key = run
        """What a child names as its parent: the run's id, or its key as long as it has none."""
        self.lost = 0

    @property
    def id(self) -> str | None:
        """The run's id; None as long as the store does not know the run."""
        if not is_key(self.key):
            return self.key
        assert self._courier is not None
        run_id = self._courier.outbox.keys().get(str(self.key))
        self.key = run_id or self.key
        return run_id

    def params(self, values: Mapping[str, Any]) -> None:
        """Settings: each value as text, cut at MLflow's 6,000 characters."""
        pairs = [(key, redact(value)[:6000]) for key, value in values.items()]
        for start in range(0, len(pairs), 100):
            self._send("params", values=dict(pairs[start : start + 100]))

    def metrics(self, values: Mapping[str, float], step: int = 0) -> None:
        """Numbers at a step."""
        self.steps([(step, values)])

    def steps(self, rows: Sequence[tuple[int, Mapping[str, float]]]) -> None:
        """Numbers at several steps, in as few calls as MLflow's 1,000 a batch allow."""
        at = now()
        whole = [(k, _number(v), at, step) for step, row in rows for k, v in row.items()]
        for start in range(0, len(whole), BATCH_METRICS):
            self._send("metrics", rows=whole[start : start + BATCH_METRICS])

    def result(self, result: Mapping[str, Any]) -> None:
        """The numbers of a job's result."""
        self.metrics({k: v for k, v in result.items() if isinstance(v, (int, float))})

    def tags(self, values: Mapping[str, str]) -> None:
        if values:
            self._send("tags", values={key: redact(value) for key, value in values.items()})

    def artifact(self, path: Path, folder: str | None = None) -> None:
        """A file, or a folder whole under its own name."""
        place = path.absolute()
        if self._courier is not None:  # the outbox may be moved with what lies beside it
            place = Path(os.path.relpath(place, self._courier.outbox.folder))
        self._send("artifact", path=str(place), folder=folder)

    def end(self, status: str, told: Path | None = None) -> None:
        """told: what the outbox's folder will be called when the job has ended."""
        self._send("end", status=status)
        if self._courier is not None:
            self._courier.last()
            self._tell_what_waits(self._courier.outbox, told)
        if self.lost:
            say(f"warning: {self.lost} calls to MLflow failed; what they held is not tracked")

    def _send(self, kind: str, **held: Any) -> None:
        if self.key is None:
            return
        record: Record = {"kind": kind, "run": self.key, "time": now(), **held}
        if self._courier is None:
            client, run = self._client, self.key
            self.lost += _retried(lambda: send(client, run, record)) is None
            return
        try:
            self._courier.send(record)
        except OSError as error:  # the disk takes nothing either
            say(f"warning: {self._courier.outbox.path} cannot be written ({error})")
            self.lost += 1

    def _tell_what_waits(self, outbox: OfflineQueue, told: Path | None) -> None:
        if self.id is not None:
            outbox.settle()
        if waiting := outbox.waiting():
            say(
                f"warning: {waiting} records wait for MLflow: "
                f"`cotbert track-sync {told or outbox.folder}` sends them"
            )
        if refused := outbox.refused():
            say(f"warning: MLflow refused {refused} records: {outbox.folder / REFUSED_FILE}")


@contextmanager
def tracked_run(
    job: str,
    params: Mapping[str, Any],
    *,
    name: str | None = None,
    parent: str | None = None,
    tags: Mapping[str, str] = MappingProxyType({}),
    home: Path | None = None,
    outbox: Path | None = None,
    outbox_name: Path | None = None,
) -> Iterator[Run]:
    """A run for the length of the block; FAILED when the block raises.

    name: by which it is listed, the job's without one. parent: id or key of the run under which
    this one is shown. tags: set when the run is made. home: folder that keeps the run's id, by
    which a job that goes on in it goes on in the same run. outbox: folder for what the store does
    not take; outbox_name: what that folder is called when the job has ended well.
    """
    run_id = earlier_run(home) if home is not None else None
    if outbox is not None:
        run = _begin(creation(name or job, parent, tags), run_id, OfflineQueue(outbox))
    else:
        parent = None if is_key(parent) else parent  # the store does not know it yet
        create = creation(name or job, parent, tags)
        run = Run(*(_retried(lambda: _open(create, run_id)) or (None, None)))
    if home is not None:
        write_text(home / RUN_FILE, run.id or "")
    run.params(params)
    run.tags({"job": job, "commit": commit(), **_versions()})
    try:
        yield run
    except BaseException as error:
        run.tags({"error": redact(error)[:500] or type(error).__name__})
        run.end("KILLED" if isinstance(error, KeyboardInterrupt) else "FAILED")
        raise
    run.end("FINISHED", outbox_name)


def end_run(run_id: str, status: str) -> None:
    """End the run of a job that cannot do so itself; where the store does not answer, a warning."""
    _retried(lambda: send(connect(), run_id, {"kind": "end", "status": status, "time": now()}))


def task_metric(task: str, name: str, model: str | None = None) -> str:
    """What a number of a task is called: STS12.spearman; of a subset STS12.subsets.MSRpar; of a
    model among several STS12.difference/MODEL."""
    return metric_name(f"{task}.{name}" + (f"/{model}" if model is not None else ""))


def metric_name(name: str) -> str:
    """A name that MLflow takes: it refuses brackets and commas."""
    return re.sub(r"[^\w\-./: ]", "", name)


def commit() -> str:
    """The commit of the code that runs, or 'released' when it is not in a checkout."""
    here = Path(__file__).parent
    command = ["git", "-C", str(here), "rev-parse", "--short=12", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "released"


def _begin(create: Record, run_id: str | None, outbox: OfflineQueue) -> Run:
    """The run of this outbox: made now, or to be made when the store answers."""
    courier = UploadWorker(outbox)
    key, known = outbox.own()
    run_id = run_id or known
    started = time.monotonic()
    if outbox.empty:  # else what waits comes first
        try:
            client, run = _open(create, run_id, outbox)
            return Run(client, run, UploadWorker(outbox, client))
        except Exception as error:  # whatever the store does, the job goes on
            courier.failed(error, time.monotonic() - started)
    earlier = run_id or key
    if earlier is None:
        outbox.know(create["run"], None)
        courier.send(create)
    else:
        courier.send({"kind": "reopen", "run": earlier, "time": now()})
    return Run(None, earlier or create["run"], courier)


def _open(
    create: Record, run_id: str | None, outbox: OfflineQueue | None = None
) -> tuple[Any, str]:
    """A client, and the id of a new run or of the earlier one if the store still has it."""
    client = connect()
    if run_id is not None:
        try:
            send(client, run_id, {"kind": "reopen"})
            return client, run_id
        except UnknownRunError:
            pass
    parent = create["parent"]
    if outbox is not None:
        parent = outbox.run_id_of(client, parent)
    return client, create_run(client, create, parent, fresh=True)


def _number(value: float) -> float | str:
    """As JSON can hold it."""
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
    """The call's result (True for none), or None with a warning when every try failed."""
    for attempt in range(RETRIES):
        try:
            result = call()
            return True if result is None else result
        except Exception as error:  # whatever the store does, the job goes on
            why = reason(error)
            if attempt + 1 < RETRIES:
                time.sleep(RETRY_SECONDS)
    say(f"warning: MLflow at {shown_uri()} did not answer ({why})")
    return None
