"""MODEL from MLflow: models:/NAME@ALIAS, models:/NAME/VERSION or runs:/ID/NAME to a folder.

It is downloaded once into the cache folder (COTBERT_CACHE), which workers on other machines must
see too. Only safetensors and JSON are opened there, as of any other folder.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from cotbert_core.encoder.backbone import from_anywhere
from cotbert_core.encoder.pooling_config import POOLING_CONFIG_FILE
from cotbert_core.errors import UserError
from cotbert_core.messages.redaction import without_credentials
from pipelines.recording.store import connect, patient, reason, shown_uri, tracking_uri
from pipelines.runtime.progress import say
from pipelines.storage.paths import cache_folder

SCHEMES = ("models:/", "runs:/")
_ALIAS = re.compile(r"models:/([^/@]+)@(.+)")
_LATEST = re.compile(r"models:/([^/@]+)/latest")
# By which a folder that opens as an encoder is known, the surest first.
MARKS = (POOLING_CONFIG_FILE, "modules.json", "config.json")


def fetch_model(name: str) -> str:
    """The encoder NAME that MODEL stands for: of an address in MLflow the folder it was downloaded
    to, of anything else itself, absolute where it is a folder. UserError where it is not found."""
    if not name.startswith(SCHEMES):
        return from_anywhere(name)
    try:
        client = connect()
        address = _fixed(client, name)
        folder = _folder(address)
        if not folder.is_dir():
            say(f"downloading {address} from MLflow to {folder}")
            _download(address, folder)
    except UserError:
        raise
    except Exception as error:  # its stores have errors of many kinds
        raise UserError(
            f"model {name!r} cannot be had from MLflow at {shown_uri()} ({reason(error)}): "
            "check the address and MLFLOW_TRACKING_URI"
        ) from None
    return str(_encoder_in(folder, name))


def _fixed(client: Any, name: str) -> str:
    """The address of what an alias, or `latest`, stands for now."""
    if alias := _ALIAS.fullmatch(name):
        found = client.get_model_version_by_alias(alias[1], alias[2])
        return f"models:/{alias[1]}/{found.version}"
    if latest := _LATEST.fullmatch(name):
        versions = client.search_model_versions(f"name='{latest[1]}'")
        if not versions:
            raise UserError(f"model {name!r}: MLflow at {shown_uri()} has no {latest[1]!r}")
        return f"models:/{latest[1]}/{max(int(v.version) for v in versions)}"
    return name


def _folder(address: str) -> Path:
    """Where it lies in the cache; a version of one store is not that of another. A password is no
    part of a store's name: its hash would stand in the folder's."""
    known_by = f"{without_credentials(tracking_uri())} {address}"
    return cache_folder() / "models" / hashlib.sha256(known_by.encode()).hexdigest()[:16]


def _download(address: str, folder: Path) -> None:
    """The folder whole or not at all; another process may do the same."""
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    from mlflow.artifacts import download_artifacts

    folder.parent.mkdir(parents=True, exist_ok=True)
    uri = tracking_uri()
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="download-") as scratch:
        with patient():
            found = download_artifacts(
                artifact_uri=address, dst_path=scratch, tracking_uri=uri, registry_uri=uri
            )
        try:
            Path(found).rename(folder)
        except OSError:
            if not folder.is_dir():
                shutil.move(found, folder)


def _encoder_in(folder: Path, name: str) -> Path:
    """The folder itself or the one in it that holds an encoder."""
    folders = [folder, *sorted(path for path in folder.iterdir() if path.is_dir())]
    for mark in MARKS:
        found = next((path for path in folders if (path / mark).is_file()), None)
        if found is not None:
            return found
    raise UserError(
        f"model {name!r} holds no encoder that opens here: give one that was saved by "
        "`cotbert train` or as sentence-transformers"
    )
