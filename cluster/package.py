"""The files and environment variables sent with a job: this project's code, but no data."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from pipelines.storage.paths import absolute_store

PACKAGES = ("cluster", "cotbert_core", "pipelines", "tune_spaces")
# Code and the few data files in the packages, such as the built-in pairs.
ENDINGS = (".py", ".tsv", ".typed")
# Addresses and credentials of MLflow, hubs and buckets.
PASSED = (
    "COTBERT_CACHE",
    "HF_ENDPOINT",
    "HF_HUB_OFFLINE",
    "HF_TOKEN",
    "MLFLOW_REGISTRY_URI",
    "OPENAI_API_KEY",
)
PASSED_PREFIXES = ("AWS_", "MLFLOW_TRACKING_")
# Variables that name files of the submitting machine; the cluster has its own files or a role.
NOT_PASSED = (
    "AWS_CA_BUNDLE",
    "AWS_CONFIG_FILE",
    "AWS_PROFILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "MLFLOW_TRACKING_CLIENT_CERT_PATH",
    "MLFLOW_TRACKING_SERVER_CERT_PATH",
)


def code_files() -> Iterator[tuple[Path, Path]]:
    """Yield the path of each file of this project and its path in the package."""
    home = Path(__file__).parents[1]  # the packages are installed beside each other
    for name in PACKAGES:
        for path in sorted((home / name).rglob("*")):
            if path.suffix in ENDINGS and path.is_file():
                yield path, path.relative_to(home)


def write_code(folder: Path) -> None:
    """Copy the code into an empty folder, which becomes the job's working directory."""
    for source, path in code_files():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, folder / path)


def passed_variables(environment: Mapping[str, str], more: tuple[str, ...] = ()) -> dict[str, str]:
    """Return the variables that a job needs and that are set. more: further names."""
    wanted = {*PASSED, *more}
    return {
        name: value
        for name, value in environment.items()
        if value
        and (name in wanted or (name.startswith(PASSED_PREFIXES) and name not in NOT_PASSED))
    }


def absolute_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with absolute paths for the cache and for databases of MLflow."""
    absolute = dict(variables)
    if cache := absolute.get("COTBERT_CACHE"):
        absolute["COTBERT_CACHE"] = os.path.abspath(cache)
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI"):
        if store := absolute.get(name):
            absolute[name] = absolute_store(store)
    return absolute
