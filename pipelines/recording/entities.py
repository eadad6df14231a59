"""MLflow's datasets and logged models: log the corpus and the trained encoder of a run."""

from __future__ import annotations

import json
from typing import Any

# MLflow's own tag for the use of a dataset.
CONTEXT_TAG = "mlflow.data.context"


def log_dataset(client: Any, run_id: str, record: dict[str, Any]) -> None:
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
    used = DatasetInput(dataset, tags=[InputTag(CONTEXT_TAG, "training")])
    client.log_inputs(run_id, datasets=[used])


def log_model(client: Any, run_id: str, record: dict[str, Any]) -> None:
    """Add an encoder to the logged models of a run, once, without its files.

    record: name, folder, params and metrics of the encoder. A tag names the folder, which keeps the
    files: a copy in the artifact store would double the disk usage.
    """
    from mlflow.entities import LoggedModelOutput, LoggedModelStatus, Metric

    experiment = client.get_run(run_id).info.experiment_id
    if client.search_logged_models([experiment], f"source_run_id = '{run_id}'", max_results=1):
        return
    model = client.create_logged_model(
        experiment,
        name=record["name"],
        source_run_id=run_id,
        tags={"model_folder": record["folder"]},
        params=record["params"],
        model_type="sentence encoder",
    )
    client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)
    client.log_outputs(run_id, [LoggedModelOutput(model.model_id, step=record["step"])])
    metrics = [
        Metric(name, value, record["time"], record["step"], model_id=model.model_id, run_id=run_id)
        for name, value in record["metrics"].items()
    ]
    client.log_batch(run_id, metrics=metrics)
