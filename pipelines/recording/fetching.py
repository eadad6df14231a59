"""Download a MODEL from MLflow: models:/NAME@ALIAS, models:/NAME/VERSION or runs:/ID/NAME.

It is downloaded once, into the cache folder (COTBERT_CACHE), which workers on other machines must
also see; a version or run that was made anew, in another database, is downloaded again. As with any
other folder, only safetensors and JSON files are opened.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from cotbert_core.encoder.locations import (
    MLFLOW_SCHEMES,
    POOLING_CONFIG_FILE,
    absolute_name,
)
from cotbert_core.errors import UserError
from cotbert_core.messages.redaction import without_credentials
from pipelines.recording.store import (
    as_default,
    connect,
    file_timeout,
    not_admitted,
    reason,
    shown_uri,
    tracking_uri,
)
from pipelines.runtime.progress import say
from pipelines.storage.paths import cache_folder

_ALIAS = re.compile(r"models:/([^/@]+)@(.+)")
_VERSION = re.compile(r"models:/([^/@]+)/(\d+)")
_RUN = re.compile(r"runs:/([^/]+)/")
_LATEST = re.compile(r"models:/([^/@]+)/latest")
# Files by which the folder of an encoder is recognised, the most specific first.
MARKER_FILES = (POOLING_CONFIG_FILE, "modules.json", "config.json")


def fetch_model(name: str) -> str:
    """Return the encoder NAME for a MODEL, after downloading it if it is in MLflow.

    An MLflow address becomes the downloaded folder, a folder its absolute path, and any other name
    stays as it is. Raises UserError if it is not found.
    """
    if not name.startswith(MLFLOW_SCHEMES):
        return absolute_name(name)
    try:
        client = connect()
        address = _resolve_version(client, name)
        folder = _folder(address, _origin(client, address))
        if not folder.is_dir():
            say(f"downloading {address} from MLflow to {folder}")
            _download(address, folder)
    except UserError:
        raise
    except Exception as error:  # MLflow's stores raise errors of many types
        if refused := not_admitted(error):
            raise UserError(f"model {name!r} cannot be loaded: {refused}") from None
        of_runs = "" if name.startswith("models:/") else "; a run has its model with --log-model"
        raise UserError(
            f"model {name!r} cannot be loaded from MLflow at {shown_uri()} ({reason(error)}): "
            f"check the address and MLFLOW_TRACKING_URI{of_runs}"
        ) from None
    return str(_encoder_in(folder, name))


def _resolve_version(client: Any, name: str) -> str:
    """Return the address of the version that an alias, or `latest`, currently points to."""
    if alias := _ALIAS.fullmatch(name):
        found = client.get_model_version_by_alias(alias[1], alias[2])
        return f"models:/{alias[1]}/{found.version}"
    if latest := _LATEST.fullmatch(name):
        versions = client.search_model_versions(f"name='{latest[1]}'")
        if not versions:
            raise UserError(
                f"model {name!r} does not exist: MLflow at {shown_uri()} has no {latest[1]!r}; "
                "check the name and MLFLOW_TRACKING_URI"
            )
        return f"models:/{latest[1]}/{max(int(v.version) for v in versions)}"
    return name


def _origin(client: Any, address: str) -> str:
    """Return what tells apart two models that had the same address: where a version comes from,
    which has an id in it, and the end of a run, which may continue and log its model again."""
    if version := _VERSION.fullmatch(address):
        return str(client.get_model_version(version[1], version[2]).source)
    if run := _RUN.match(address):
        return str(client.get_run(run[1]).info.end_time)
    return ""


def _folder(address: str, origin: str) -> Path:
    """Return the cache folder of an address.

    Its name is a hash of the address, its origin and the store without its password: another store
    has other versions.
    """
    known_by = f"{without_credentials(tracking_uri())} {address} {origin}"
    return cache_folder() / "models" / hashlib.sha256(known_by.encode()).hexdigest()[:16]


def _download(address: str, folder: Path) -> None:
    """Download a folder atomically; another process may do the same."""
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    from mlflow.artifacts import download_artifacts

    folder.parent.mkdir(parents=True, exist_ok=True)
    uri = tracking_uri()
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="download-") as scratch:
        with as_default(), file_timeout():
            found = download_artifacts(
                artifact_uri=address, dst_path=scratch, tracking_uri=uri, registry_uri=uri
            )
        try:
            Path(found).rename(folder)
        except OSError:
            if not folder.is_dir():
                shutil.move(found, folder)


def _encoder_in(folder: Path, name: str) -> Path:
    """Return the folder, or the folder in it, that holds an encoder."""
    folders = [folder, *sorted(path for path in folder.iterdir() if path.is_dir())]
    for marker in MARKER_FILES:
        found = next((path for path in folders if (path / marker).is_file()), None)
        if found is not None:
            return found
    raise UserError(
        f"model {name!r} contains no encoder that can be opened: give one that was saved by "
        "`cotbert train` or by sentence-transformers"
    )
