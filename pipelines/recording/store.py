"""The MLflow store: its address, a client of it, and what a failure of it is called."""

from __future__ import annotations

import logging
import os
import re
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from cotbert_core.errors import UserError
from cotbert_core.imports import first_import
from cotbert_core.messages.redaction import redact
from pipelines.storage.paths import absolute_store, locked_folder

ADDRESS = "MLFLOW_TRACKING_URI"
# MLflow's environment variables, set unless the user has set them. A call times out after 10 s: a
# job must not wait for a hanging server, and the record is sent later. A server that receives a
# file may first copy it to a bucket, so it gets more time. MLflow must not retry calls, since it
# would create runs twice. Neither Ray (ray_session) nor MLflow sends usage data: MLflow's thread
# removes a variable while Ray copies the environment, and without a network 2 of 8 jobs ended with
# a KeyError.
TIMEOUT, CALL_SECONDS, FILE_SECONDS = "MLFLOW_HTTP_REQUEST_TIMEOUT", "10", "60"
TRIES = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"
TELEMETRY_OFF = "MLFLOW_DISABLE_TELEMETRY"
SILENT = "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"
DATABASES = ("mssql", "mysql", "postgresql", "sqlite")
SQLITE = "sqlite:///"
# The store where MLFLOW_TRACKING_URI is not set; a submitted job on this machine is given it.
OWN_STORE = f"{SQLITE}mlflow.db"
SERVERS = ("http", "https", "databricks", "databricks-uc", "uc")
# The cause in an error of urllib3, and the statuses of a wrong password or of too few rights.
_CAUSE = re.compile(r"Caused by \w+\((.*)\)\)$", re.MULTILINE)
_SSL_CAUSE = re.compile(r"SSL\w*\(\d+, '(.*)'\)")
_NOT_ADMITTED = re.compile(r"\berror code 40[13]\b")
# MLflow 3.17 refuses a folder of files as its store unless this is set.
FOLDERS_ALLOWED = "MLFLOW_ALLOW_FILE_STORE"


def tracking_uri() -> str:
    """Return MLFLOW_TRACKING_URI with an absolute path, or else a database in the current folder.

    The path is absolute, since workers have different current folders.
    """
    return absolute_store(os.environ.get(ADDRESS) or OWN_STORE)


def shown_uri() -> str:
    """Return the store's address without credentials."""
    return redact(tracking_uri())


def check_address() -> None:
    """Raise UserError if MLFLOW_TRACKING_URI names a store to which MLflow cannot write."""
    uri = tracking_uri()
    scheme = "file" if uri.startswith("/") else uri.partition(":")[0].partition("+")[0]
    what = f"MLFLOW_TRACKING_URI is {shown_uri()!r}"
    if scheme == "file":
        if os.environ.get(FOLDERS_ALLOWED, "").lower() in ("true", "1"):
            return
        path = Path(uri.removeprefix("file://").removeprefix("file:"))
        database = path if path.suffix and not path.is_dir() else path / "mlflow.db"
        raise UserError(
            f"{what}, for MLflow a folder, to which it writes no longer: give a database, such as "
            f"{SQLITE}{database}, or set {FOLDERS_ALLOWED}=true"
        )
    if scheme not in (*DATABASES, *SERVERS):
        from importlib.metadata import entry_points  # those of MLflow's plugins

        known = {point.name for point in entry_points(group="mlflow.tracking_store")}
        if scheme not in known:
            raise UserError(
                f"{what}, and MLflow has no store {scheme!r}: give the address of a server "
                f"(http://HOST:PORT) or a database, such as {SQLITE}mlflow.db"
            )


def check_outside(output: Path) -> None:
    """Raise UserError if the store is a database in this folder, which a job replaces when it has
    ended."""
    uri = tracking_uri()
    file = Path(uri.removeprefix(SQLITE).partition("?")[0])
    if uri.startswith(SQLITE) and file.resolve().is_relative_to(output.resolve()):
        raise UserError(
            f"the MLflow store {shown_uri()!r} is in the output {str(output)!r}, a folder that the "
            "job creates only when it is complete: give another output, or a store outside of it"
        )


@first_import("mlflow")
def connect() -> Any:
    """Return a client of the store."""
    os.environ.setdefault(TRIES, "0")
    os.environ.setdefault(TIMEOUT, CALL_SECONDS)
    os.environ.setdefault(TELEMETRY_OFF, "true")
    from mlflow import MlflowClient

    # MLflow imports polars if it is installed, whose handler of SIGINT lets the system resume what
    # it interrupts: Ctrl-C would not end a wait for a thread.
    signal.siginterrupt(signal.SIGINT, True)
    # MLflow sets its log levels when it is imported.
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # Its errors are raised too, and a job warns of them in a sentence.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
    # MLflow prints a run's address, with its password, to standard output when the run ends.
    os.environ.setdefault(SILENT, "true")
    uri = tracking_uri()
    if uri.partition(":")[0].partition("+")[0] not in DATABASES:
        return MlflowClient(tracking_uri=uri)
    with _probed_database(uri):
        return MlflowClient(tracking_uri=uri)


@contextmanager
def _probed_database(uri: str) -> Iterator[None]:
    """Open a database once and raise its error; MLflow would retry for 100 s, with warnings.

    A SQLite database is opened by one process at a time in the block, and a new one has its name
    once it has its tables: if two make these at once, or one is killed, MLflow never opens it.
    """
    import sqlalchemy

    engine = sqlalchemy.create_engine(uri)
    file = Path(engine.url.database or "")
    with locked_folder(file.parent) if uri.startswith(SQLITE) else nullcontext():
        try:
            engine.connect().close()
        finally:
            engine.dispose()
        if uri.startswith(SQLITE) and file.is_file() and not file.stat().st_size:
            _make_tables(uri, file)
        yield


def _make_tables(uri: str, file: Path) -> None:
    """Let MLflow make the tables of a new SQLite database, first in another file."""
    from mlflow import MlflowClient

    partial, journal = (file.with_name(f"{file.name}.partial{end}") for end in ("", "-journal"))
    for left in (partial, journal):  # by a killed process
        left.unlink(missing_ok=True)
    path, *options = uri.partition("?")
    MlflowClient(tracking_uri="".join([f"{path}.partial", *options]))
    partial.replace(file)


def file_timeout() -> AbstractContextManager[None]:
    """Allow more time for each call in the block, which sends files."""
    seconds = os.environ.get(TIMEOUT, CALL_SECONDS)
    return _variable(TIMEOUT, FILE_SECONDS if seconds == CALL_SECONDS else seconds)


def as_default() -> AbstractContextManager[None]:
    """Make the store MLflow's default one in the block, which registers or downloads a model.

    MLflow looks up models:/ addresses in its default store, whatever store it was given, and that
    is ./mlruns if an older MLflow has made one in the current folder.
    """
    return _variable(ADDRESS, tracking_uri())


@contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    """Set an environment variable in the block."""
    previous = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if previous is None:
            del os.environ[name]
        else:
            os.environ[name] = previous


def reason(error: BaseException) -> str:
    """Return the first line of an error, or of a connection that failed its cause, without
    credentials."""
    text = redact(error).strip()
    if cause := _CAUSE.search(text):  # of a dead or a hanging server: else cut off with the address
        if of_ssl := _SSL_CAUSE.search(cause[1]):
            return of_ssl[1][:200]
        return cause[1].strip("'\"").rpartition(": ")[2][:200]
    return text.splitlines()[0][:200] if text else repr(error)


def no_answer(error: BaseException) -> str:
    """Return what is wrong with the store, in the words for a warning."""
    return not_admitted(error) or f"MLflow at {shown_uri()} did not answer ({reason(error)})"


def not_admitted(error: BaseException) -> str | None:
    """Return where to check the user and password if the store refused them, None otherwise."""
    if not _NOT_ADMITTED.search(str(error)):
        return None
    place = "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
    if "@" in tracking_uri():
        place = "the user and password in MLFLOW_TRACKING_URI"
    return f"MLflow at {shown_uri()} does not admit this user: check {place}"
