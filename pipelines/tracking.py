"""MLflow: one run per job. A tracking failure is a warning and a retry, never a job's end.

The run lives in the store of MLFLOW_TRACKING_URI, else in ./mlflow.db with ./mlartifacts beside
it. Every call goes through a client with an explicit run id, on the driver alone.
"""

from __future__ import annotations

import logging
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

from pipelines.progress import say

EXPERIMENT = "cotbert"
LOSS = "loss"
DEV_SPEARMAN = "dev_spearman"
TEST_SPEARMAN = "test_spearman"
ALIGNMENT = "alignment"
UNIFORMITY = "uniformity"
SENTENCES_PER_SECOND = "sentences_per_second"
VERSIONED = ("cotbert", "ray", "torch", "transformers", "mlflow", "pyarrow", "numpy")
RETRIES = 2
RETRY_SECONDS = 1.0


class Run:
    """One MLflow run, or none if the store could not be reached when it should have begun."""

    def __init__(self, client: Any, run_id: str | None) -> None:
        self._client = client
        self.id = run_id
        self.lost = 0

    def params(self, values: Mapping[str, Any]) -> None:
        """Settings: each value as text, cut at MLflow's 6,000 characters."""
        from mlflow.entities import Param

        pairs = [Param(k, str(v)[:6000]) for k, v in values.items()]
        for start in range(0, len(pairs), 100):
            self._send(lambda s=start: self._client.log_batch(self.id, params=pairs[s : s + 100]))  # type: ignore[misc]

    def metrics(self, values: Mapping[str, float], step: int = 0) -> None:
        """Numbers at a step."""
        self.steps([(step, values)])

    def steps(self, rows: Sequence[tuple[int, Mapping[str, float]]]) -> None:
        """Numbers at several steps, in as few calls as MLflow's 1,000 a batch allow: a store that
        has gone away must not be waited for at every step."""
        from mlflow.entities import Metric

        now = round(time.time() * 1000)
        batch = [Metric(k, float(v), now, step) for step, row in rows for k, v in row.items()]
        for start in range(0, len(batch), 1000):
            self._send(
                lambda s=start: self._client.log_batch(self.id, metrics=batch[s : s + 1000])  # type: ignore[misc]
            )

    def result(self, result: Mapping[str, Any]) -> None:
        """The numbers of a job's result."""
        self.metrics({k: v for k, v in result.items() if isinstance(v, (int, float))})

    def tags(self, values: Mapping[str, str]) -> None:
        for key, value in values.items():
            self._send(lambda k=key, v=value: self._client.set_tag(self.id, k, v))  # type: ignore[misc]

    def artifact(self, path: Path, folder: str | None = None) -> None:
        """A file, or a folder whole under its own name."""
        if path.is_dir():
            self._send(lambda: self._client.log_artifacts(self.id, str(path), path.name))
        else:
            self._send(lambda: self._client.log_artifact(self.id, str(path), folder))

    def end(self, status: str) -> None:
        self._send(lambda: self._client.set_terminated(self.id, status))
        if self.lost:
            say(f"warning: {self.lost} calls to MLflow failed; what they held is not tracked")

    def _send(self, call: Callable[[], Any]) -> None:
        if self.id is not None and _retried(call) is None:
            self.lost += 1


@contextmanager
def tracked_run(
    job: str,
    params: Mapping[str, Any],
    *,
    parent: str | None = None,
    run_id: str | None = None,
) -> Iterator[Run]:
    """A run for the length of the block; FAILED when the block raises.

    parent: run id under which this one is shown. run_id: an earlier run to go on with.
    """
    client, run_id = _retried(lambda: _open(job, parent, run_id)) or (None, None)
    run = Run(client, run_id)
    if run_id is not None:
        run.params(params)
        run.tags({"job": job, "commit": commit(), **_versions()})
    try:
        yield run
    except BaseException as error:
        run.tags({"error": str(error)[:500] or type(error).__name__})
        run.end("KILLED" if isinstance(error, KeyboardInterrupt) else "FAILED")
        raise
    run.end("FINISHED")


def tracking_uri() -> str:
    """MLFLOW_TRACKING_URI, else a database in the caller's folder (absolute: workers move)."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{Path.cwd() / 'mlflow.db'}"


def commit() -> str:
    """The commit of the code that runs, or 'released' when it is not in a checkout."""
    here = Path(__file__).parent
    command = ["git", "-C", str(here), "rev-parse", "--short=12", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "released"


def _open(job: str, parent: str | None, run_id: str | None) -> tuple[Any, str]:
    """A client, and the id of a new run or of the earlier one if the store still has it."""
    # Few and short retries: an absent server must not hold up a job for minutes.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
    from mlflow import MlflowClient

    # Its levels are set when it is imported.
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    uri = tracking_uri()
    if not uri.startswith("http"):
        # A database that cannot be opened would be tried for 100 seconds, each time with a warning.
        from mlflow.store.db import utils

        utils.MAX_RETRY_COUNT = RETRIES
        logging.getLogger(utils.__name__).setLevel(logging.ERROR)
    client = MlflowClient(tracking_uri=uri)
    if run_id is not None and _reopened(client, run_id):
        return client, run_id
    experiment = client.get_experiment_by_name(EXPERIMENT)
    place = None if os.environ.get("MLFLOW_TRACKING_URI") else (Path.cwd() / "mlartifacts").as_uri()
    experiment_id = (
        experiment.experiment_id
        if experiment is not None
        else client.create_experiment(EXPERIMENT, artifact_location=place)
    )
    tags = {"mlflow.parentRunId": parent} if parent else {}
    return client, client.create_run(experiment_id, run_name=job, tags=tags).info.run_id


def _reopened(client: Any, run_id: str) -> bool:
    """Whether this store has the run, which then is running again."""
    from mlflow.exceptions import MlflowException

    try:
        client.update_run(run_id, status="RUNNING")
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return False
    return True


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
            reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else repr(error)
            if attempt + 1 < RETRIES:
                time.sleep(RETRY_SECONDS)
    say(f"warning: MLflow at {tracking_uri()} did not answer ({reason})")
    return None
