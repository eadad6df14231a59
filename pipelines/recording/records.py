"""The records of a run, and how the store takes them.

A record is a JSON object: its kind, its run, its creation time (ms) and its contents. Sending a
record is idempotent: MLflow stores an equal param or metric once, and a run is searched by its key
before it is created.
"""

from __future__ import annotations

import json
import time
import uuid
from pathlib import Path
from typing import Any

from cotbert_core.messages.printable import printable
from cotbert_core.messages.redaction import redact
from pipelines.recording.artifacts import RefusedError, send_artifact
from pipelines.recording.store import OWN_STORE, file_timeout, reason, tracking_uri
from pipelines.storage.paths import absolute_store

EXPERIMENT = "cotbert"
Record = dict[str, Any]
# A run that is not in the store yet is named by a key, which later becomes a tag of the run.
KEY_TAG, LOCAL = "cotbert.key", "local-"
ERROR_TAG = "error"  # why a run ended, until it is continued


class UnknownRunError(Exception):
    """The store has no such run: it belongs to another store."""


def now() -> int:
    return round(time.time() * 1000)


def is_key(run: str | None) -> bool:
    """Return whether `run` is a key, whose run may not exist in the store yet."""
    return run is not None and run.startswith(LOCAL)


def create_record(name: str) -> Record:
    """Return the record that creates a run."""
    run, shown = LOCAL + uuid.uuid4().hex, printable(redact(name))
    return {"kind": "create", "run": run, "time": now(), "name": shown, "parent": None}


def create_run(client: Any, record: Record, parent: str | None) -> str:
    """Return the id of the record's run, created unless an earlier call created it, whose answer
    may have been lost."""
    experiment = _experiment(client)
    found = client.search_runs([experiment], f"tags.`{KEY_TAG}` = '{record['run']}'", max_results=1)
    if found:
        return str(found[0].info.run_id)
    tags = {KEY_TAG: record["run"]}
    if parent:
        tags["mlflow.parentRunId"] = parent
    run = client.create_run(
        experiment, start_time=record["time"], run_name=record["name"], tags=tags
    )
    return str(run.info.run_id)


def _experiment(client: Any) -> str:
    experiment = client.get_experiment_by_name(EXPERIMENT)
    if experiment is not None:
        if experiment.lifecycle_stage == "deleted":
            raise RuntimeError(
                f"its experiment {EXPERIMENT} is deleted: `mlflow experiments restore "
                f"--experiment-id {experiment.experiment_id}` restores it"
            )
        return str(experiment.experiment_id)
    own = tracking_uri() == absolute_store(OWN_STORE)
    folder = (Path.cwd() / "mlartifacts").as_uri() if own else None
    return str(client.create_experiment(EXPERIMENT, artifact_location=folder))


def send(client: Any, run_id: str, record: Record, folder: Path | None = None) -> None:
    """Send a record to the store.

    folder: the job's folder, to which an artifact's path is relative and outside which no file is
    sent; None for a record of this process, whose path is absolute. Raises RefusedError,
    UnknownRunError, or another error if the store did not answer.
    """
    from mlflow.exceptions import MlflowException

    try:
        _send(client, run_id, record, folder)
    except MlflowException as error:
        # A server before MLflow 3 has no logged models.
        if error.error_code in ("INVALID_PARAMETER_VALUE", "ENDPOINT_NOT_FOUND"):
            raise RefusedError(reason(error)) from None
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            raise UnknownRunError(f"it has no run {run_id}") from None
        raise


def _send(client: Any, run_id: str, record: Record, folder: Path | None) -> None:
    from mlflow.entities import Metric, Param, RunTag

    match record["kind"]:
        case "reopen":
            client.update_run(run_id, status="RUNNING")
            if ERROR_TAG in client.get_run(run_id).data.tags:
                client.delete_tag(run_id, ERROR_TAG)
        case "params":
            client.log_batch(run_id, params=[Param(k, v) for k, v in record["values"].items()])
        case "tags":
            client.log_batch(run_id, tags=[RunTag(k, v) for k, v in record["values"].items()])
        case "metrics":
            # Numbers that JSON lacks (nan, inf) are stored as text.
            rows = [Metric(k, float(v), at, step) for k, v, at, step in record["rows"]]
            client.log_batch(run_id, metrics=rows)
        case "artifact":
            with file_timeout():
                send_artifact(client, run_id, record["path"], folder)
        case "dataset":
            _log_dataset(client, run_id, record)
        case "model":
            _log_model(client, run_id, record)
        case "end":
            client.set_terminated(run_id, record["status"], end_time=record["time"])
        case kind:
            raise ValueError(f"{kind!r} is not a kind of record")


def _log_dataset(client: Any, run_id: str, record: dict[str, Any]) -> None:
    """Add a corpus to the datasets of a run; MLflow keeps one entry for the same name and digest.

    record: name, digest, path and rows of the corpus.
    """
    from mlflow.entities import Dataset, DatasetInput, InputTag

    dataset = Dataset(
        name=record["name"],
        digest=record["digest"],
        source_type="local",
        source=json.dumps({"uri": record["path"]}),
        profile=json.dumps({"num_rows": record["rows"]}),
    )
    used = DatasetInput(dataset, tags=[InputTag("mlflow.data.context", "training")])
    client.log_inputs(run_id, datasets=[used])


def _log_model(client: Any, run_id: str, record: dict[str, Any]) -> None:
    """Add an encoder to the logged models of a run, once, without its files.

    record: name, folder, params and metrics of the encoder. A tag names the folder, which keeps the
    files: a copy in the artifact store would double the disk usage. A model that an earlier call,
    whose answer was lost, created is completed.
    """
    from mlflow.entities import LoggedModelOutput, LoggedModelStatus, Metric

    run = client.get_run(run_id)
    if run.outputs and run.outputs.model_outputs:  # the last that is sent
        return
    experiment = run.info.experiment_id
    found = client.search_logged_models([experiment], f"source_run_id = '{run_id}'", max_results=1)
    if found:
        model = found[0]
    else:
        model = client.create_logged_model(
            experiment,
            name=record["name"],
            source_run_id=run_id,
            tags={"model_folder": record["folder"]},
            params=record["params"],
            model_type="sentence encoder",
        )
    client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)
    metrics = [
        Metric(name, value, record["time"], record["step"], model_id=model.model_id, run_id=run_id)
        for name, value in record["metrics"].items()
    ]
    client.log_batch(run_id, metrics=metrics)
    client.log_outputs(run_id, [LoggedModelOutput(model.model_id, step=record["step"])])
