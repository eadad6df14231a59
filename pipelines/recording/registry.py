"""Register trained encoders in MLflow, with an alias for the best version.

`mlflow.pyfunc.load_model("models:/NAME@best").predict(sentences)` returns (N, D) vectors in any
process that has mlflow and sentence-transformers: models are saved in MLflow's
sentence-transformers flavor, as safetensors and JSON, without pickles.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from cotbert_core.errors import UserError, require_packages
from cotbert_core.training.dev_scores import sort_key
from pipelines.recording.dev_metric import SPEARMAN, DevMetric
from pipelines.recording.metric_names import model_name
from pipelines.recording.store import as_default, connect, file_timeout, reason, shown_uri
from pipelines.recording.tracking import Run
from pipelines.runtime.progress import say

ALIAS = "best"
# The input example of a model, from which its signature is inferred.
EXAMPLE = ["One sentence.", "Another one"]
# MLflow refuses / and : and other characters that are special in a models:/ address.
NAME = re.compile(r"[\w][\w .-]*")
# The tags of a version that say which dev set its score is from.
DEV_SET = ("dev", "dev_digest")


def check_registry(name: str) -> None:
    """Raise UserError if a model cannot be registered under this name."""
    if not NAME.fullmatch(name):
        raise UserError(
            f"the registered name is {name!r}: use only letters, digits, blanks, '.', '_' and '-'"
        )
    require_packages(f"registering a model as {name!r}", ["sentence_transformers"], "registry")


def register(
    run: Run,
    folder: Path,
    name: str,
    score: float | None = None,
    dev: str | None = None,
    metric: DevMetric = SPEARMAN,
    dev_digest: str | None = None,
) -> str | None:
    """Register a trained folder as a version of `name` and return its models:/ address.

    score: dev score by `metric`. dev, dev_digest: name and digest of the dev set. ALIAS moves to
    this version unless its current one scores at least as high by the same metric on the same dev
    set; a message names the alias's version. If the store fails or the run does not exist
    there, shows a warning and returns None.
    """
    check_registry(name)
    if run.id is None:
        say(f"warning: {folder} is not registered as {name!r}: its run is not in MLflow yet")
        return None
    try:
        client = connect()
        tags = {} if score is None else {metric.name: repr(float(score))}
        dev_set = zip(DEV_SET, (dev, dev_digest), strict=True)
        tags |= {key: value for key, value in dev_set if value is not None}
        version = _add_version(client, run.id, folder, name, tags)
        _move_alias(client, name, version, tags, metric)
    except Exception as error:  # a failure of the store must not end the job
        say(
            f"warning: {folder} is not registered as {name!r} at MLflow {shown_uri()} "
            f"({reason(error)})"
        )
        return None
    return f"models:/{name}/{version}"


def _add_version(client: Any, run_id: str, folder: Path, name: str, tags: dict[str, str]) -> str:
    """Log a model to the run's experiment and create a version of `name` from it."""
    from mlflow.exceptions import MlflowException
    from sentence_transformers import SentenceTransformer

    encoder = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    run = client.get_run(run_id)
    model = client.create_logged_model(
        run.info.experiment_id, name=model_name(name), source_run_id=run_id
    )
    with tempfile.TemporaryDirectory() as scratch:
        save_flavour(encoder, Path(scratch) / "model", run_id, model.model_id)
        # What sentence-transformers saved lacks this project's pooling settings and, outside of
        # transformers, treats typed special tokens as special; servers would load models that they
        # cannot run correctly.
        for marked in (Path(scratch) / "model").rglob("modules.json"):
            shutil.copytree(folder, marked.parent, dirs_exist_ok=True)
        with file_timeout():
            client.log_model_artifacts(model.model_id, str(Path(scratch) / "model"))
    client.finalize_logged_model(model.model_id, "READY")
    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    with as_default():
        version = client.create_model_version(
            name, f"models:/{model.model_id}", run_id, tags=tags, model_id=model.model_id
        )
    return str(version.version)


def save_flavour(
    encoder: Any, path: Path, run_id: str | None = None, model_id: str | None = None
) -> None:
    """Save a SentenceTransformer as an MLflow model folder with signature and example."""
    import mlflow.sentence_transformers
    from mlflow.models import Model, infer_signature

    mlflow.sentence_transformers.save_model(
        encoder,
        str(path),
        mlflow_model=Model(run_id=run_id, model_id=model_id),
        signature=infer_signature(EXAMPLE, encoder.encode(EXAMPLE, show_progress_bar=False)),
        input_example=EXAMPLE,
        # MLflow would otherwise load the model in another process to infer them.
        pip_requirements=[
            f"{package}=={metadata.version(package)}"
            for package in ("mlflow", "sentence-transformers", "transformers", "torch")
        ],
    )


def _move_alias(
    client: Any, name: str, version: str, tags: Mapping[str, str], metric: DevMetric
) -> None:
    """Move the alias to this version, unless its current version is at least as good on the same
    dev set. tags: of this version."""
    earlier = client.get_registered_model(name).aliases.get(ALIAS)
    before = {} if earlier is None else client.get_model_version(name, earlier).tags
    best, score = before.get(metric.name), tags.get(metric.name)
    # Versions that were registered without a digest are known by the dev set's name alone.
    same = all(before.get(key, tags.get(key)) == tags.get(key) for key in DEV_SET)
    if best is not None and (
        score is None or (same and sort_key(float(best)) >= sort_key(float(score)))
    ):
        say(
            f"{name}@{ALIAS} stays at version {earlier} ({_score(best, metric)}); the new version "
            f"is {version} ({_score(score, metric)})"
        )
        return
    client.set_registered_model_alias(name, ALIAS, version)
    other = "" if same else ", which was scored on another dev set"
    previous = f", previously version {earlier} ({_score(best, metric)}){other}" if before else ""
    say(f"{name}@{ALIAS} is now version {version} ({_score(score, metric)}){previous}")


def _score(value: str | None, metric: DevMetric) -> str:
    return "no dev score" if value is None else f"{metric.words} {float(value):.2f}"
