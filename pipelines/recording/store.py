"""The MLflow store: how it is reached, and what each record of a run becomes there.

A record is a JSON object: its kind, the run it belongs to, the time (ms) at which it was made, and
what it holds. Sending one again changes nothing: MLflow keeps an equal param or metric once, and a
run is looked for by its key before it is made.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cotbert_core.messages.printable import printable
from cotbert_core.messages.redaction import redact, without_credentials

EXPERIMENT = "cotbert"
Record = dict[str, Any]
# A run that the store does not know yet is named by a key, which stays with it as this tag.
KEY_TAG, LOCAL = "cotbert.key", "local-"
# MLflow's own settings, where the user has not set them. A call is given up after 10 s: what was
# not taken is sent later, and a job must not stand still for a server that hangs. One that is
# given a file may have to bring it to a bucket first. MLflow must not repeat calls: it would make
# runs twice.
TIMEOUT, CALL_SECONDS, FILE_SECONDS = "MLFLOW_HTTP_REQUEST_TIMEOUT", "10", "60"
TRIES = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"
SILENT = "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"
DATABASES = ("mssql", "mysql", "postgresql", "sqlite")
SQLITE = "sqlite:///"
# Files that a message names at most.
NAMED = 5


class RefusedError(Exception):
    """The store answered that it will never take this record."""


class UnknownRunError(Exception):
    """The store answered and has no such run: it is another store than the run's."""


def tracking_uri() -> str:
    """MLFLOW_TRACKING_URI, else a database in the caller's folder (absolute: workers move)."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{Path.cwd() / 'mlflow.db'}"


def shown_uri() -> str:
    """Return the store's address as it may be shown: without credentials."""
    return redact(tracking_uri())


def connect() -> Any:
    """A client of the store."""
    os.environ.setdefault(TRIES, "0")
    os.environ.setdefault(TIMEOUT, CALL_SECONDS)
    from mlflow import MlflowClient

    # Its levels are set when it is imported.
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    uri = tracking_uri()
    if uri != without_credentials(uri):  # MLflow prints a run's address when it ends
        os.environ.setdefault(SILENT, "true")
    if uri.partition(":")[0].partition("+")[0] in DATABASES:
        _probe_database(uri)
    return MlflowClient(tracking_uri=uri)


def _probe_database(uri: str) -> None:
    """Open a database once, with its error where it cannot be opened.

    MLflow tries one for 100 seconds, each time with a warning.
    """
    import sqlalchemy

    if uri.startswith(SQLITE):  # MLflow makes its folder too
        Path(uri.removeprefix(SQLITE)).parent.mkdir(parents=True, exist_ok=True)
    engine = sqlalchemy.create_engine(uri)
    try:
        engine.connect().close()
    finally:
        engine.dispose()


@contextmanager
def patient() -> Iterator[None]:
    """More time for each call, as files need it."""
    before = os.environ.get(TIMEOUT, CALL_SECONDS)
    os.environ[TIMEOUT] = FILE_SECONDS if before == CALL_SECONDS else before
    try:
        yield
    finally:
        os.environ[TIMEOUT] = before


def now() -> int:
    return round(time.time() * 1000)


def new_key() -> str:
    return LOCAL + uuid.uuid4().hex


def is_key(run: str | None) -> bool:
    """Whether this names a run that the store may not know yet."""
    return run is not None and run.startswith(LOCAL)


def creation(name: str, parent: str | None, tags: Mapping[str, str]) -> Record:
    """The record of a new run's beginning."""
    shown = printable(redact(name))
    record = {"kind": "create", "run": new_key(), "time": now(), "name": shown, "parent": parent}
    return {**record, "tags": {key: redact(value) for key, value in tags.items()}}


def create_run(client: Any, record: Record, parent: str | None, *, fresh: bool = False) -> str:
    """The id of the record's run, made now unless it was before. fresh: it cannot have been."""
    experiment = _experiment(client)
    if not fresh:
        found = client.search_runs(
            [experiment], f"tags.`{KEY_TAG}` = '{record['run']}'", max_results=1
        )
        if found:
            return str(found[0].info.run_id)
    tags = {**record["tags"], KEY_TAG: record["run"]}
    if parent:
        tags["mlflow.parentRunId"] = parent
    made = client.create_run(
        experiment, start_time=record["time"], run_name=record["name"], tags=tags
    )
    return str(made.info.run_id)


def _experiment(client: Any) -> str:
    experiment = client.get_experiment_by_name(EXPERIMENT)
    if experiment is not None:
        return str(experiment.experiment_id)
    place = None if os.environ.get("MLFLOW_TRACKING_URI") else (Path.cwd() / "mlartifacts").as_uri()
    return str(client.create_experiment(EXPERIMENT, artifact_location=place))


def send(client: Any, run_id: str, record: Record, folder: Path | None = None) -> None:
    """Tell the store. folder: the job's, from which a record's artifact is named and outside of
    which none is sent; None: the record is this process's own and names it by its absolute path.

    Raises RefusedError, UnknownRunError, or whatever shows that the store did not answer.
    """
    from mlflow.exceptions import MlflowException

    try:
        _SENDERS[record["kind"]](client, run_id, record, folder)
    except MlflowException as error:
        if error.error_code == "INVALID_PARAMETER_VALUE":
            raise RefusedError(reason(error)) from None
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            raise UnknownRunError(f"it has no run {run_id}") from None
        raise


def reason(error: BaseException) -> str:
    """An error's first line, without credentials."""
    text = redact(error).strip()
    return text.splitlines()[0][:200] if text else repr(error)


def _reopen(client: Any, run_id: str, record: Record, folder: Path | None) -> None:
    client.update_run(run_id, status="RUNNING")


def _params(client: Any, run_id: str, record: Record, folder: Path | None) -> None:
    from mlflow.entities import Param

    client.log_batch(run_id, params=[Param(k, v) for k, v in record["values"].items()])


def _metrics(client: Any, run_id: str, record: Record, folder: Path | None) -> None:
    from mlflow.entities import Metric

    # Numbers come as text where JSON has none for them (nan, inf).
    metrics = [Metric(k, float(v), at, step) for k, v, at, step in record["rows"]]
    client.log_batch(run_id, metrics=metrics)


def _tags(client: Any, run_id: str, record: Record, folder: Path | None) -> None:
    from mlflow.entities import RunTag

    client.log_batch(run_id, tags=[RunTag(k, v) for k, v in record["values"].items()])


def _artifact(client: Any, run_id: str, record: Record, folder: Path | None) -> None:
    path = (folder or Path()) / str(record["path"])
    if folder is not None and not path.resolve().is_relative_to(folder.resolve()):
        raise RefusedError(f"{path} lies outside of the job's folder and is not sent")
    if not path.exists():
        raise RefusedError(f"{path} is not there any more")
    foreign = [] if folder is None else foreign_files(path, folder.resolve())
    with patient():
        if foreign:
            _send_all_but(client, run_id, path, foreign)
        elif path.is_dir():
            client.log_artifacts(run_id, str(path), path.name)
        else:
            client.log_artifact(run_id, str(path), record["folder"])


def foreign_files(path: Path, home: Path) -> list[Path]:
    """Return what of an artifact, a file or a folder, is no file of the folder `home`.

    home: resolved. Links to folders are among them wherever they lead, since MLflow's stores differ
    in whether they follow them, and pipes and devices, whose reading does not end.
    """
    found = [path]
    if path.is_dir():
        found = [Path(at) / name for at, _, names in os.walk(path) for name in names]
        found += [
            p for at, names, _ in os.walk(path) for n in names if (p := Path(at) / n).is_symlink()
        ]
    return sorted(p for p in found if not (p.is_file() and p.resolve().is_relative_to(home)))


def _send_all_but(client: Any, run_id: str, path: Path, foreign: list[Path]) -> None:
    """Send a folder's files but these, then raise RefusedError, which names them."""
    refused = set(foreign)
    for file in sorted(p for p in path.rglob("*") if p.is_file() and p not in refused):
        client.log_artifact(run_id, str(file), file.parent.relative_to(path.parent).as_posix())
    named = ", ".join(map(str, foreign[:NAMED]))
    more = f" and {len(foreign) - NAMED} more" if len(foreign) > NAMED else ""
    raise RefusedError(
        f"{len(foreign)} of what {path} holds lead outside of the job's folder or are no files, "
        f"and are not sent: {named}{more}"
    )


def _end(client: Any, run_id: str, record: Record, folder: Path | None) -> None:
    client.set_terminated(run_id, record["status"], end_time=record["time"])


_SENDERS: dict[str, Callable[[Any, str, Record, Path | None], None]] = {
    "reopen": _reopen,
    "params": _params,
    "metrics": _metrics,
    "tags": _tags,
    "artifact": _artifact,
    "end": _end,
}
