"""What travels with a job: this project's code, and names of the environment. Never data."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("cluster", "cotbert_core", "pipelines", "tune_spaces")
# Code, and the few files that lie beside it: the built-in pairs.
ENDINGS = (".py", ".tsv", ".typed")
# Of MLflow, hubs and buckets: where they are, and what opens them.
PASSED = (
    "COTBERT_CACHE",
    "HF_ENDPOINT",
    "HF_HUB_OFFLINE",
    "HF_TOKEN",
    "MLFLOW_TRACKING_PASSWORD",
    "MLFLOW_TRACKING_TOKEN",
    "MLFLOW_TRACKING_URI",
    "MLFLOW_TRACKING_USERNAME",
    "OPENAI_API_KEY",
)
PASSED_PREFIX = "AWS_"
# Files of the machine that submits; the cluster has its own, or a role.
NOT_PASSED = (
    "AWS_CA_BUNDLE",
    "AWS_CONFIG_FILE",
    "AWS_PROFILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
)


def code_files() -> Iterator[tuple[Path, Path]]:
    """(where a file of this project lies, its path in the package)."""
    for name in PACKAGES:
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(f"the package {name} is not installed")
        home = Path(spec.origin).parent
        for path in sorted(home.rglob("*")):
            if path.suffix in ENDINGS and path.is_file():
                yield path, path.relative_to(home.parent)


def write_code(folder: Path) -> None:
    """Copy the code into an empty folder, which becomes the job's working directory."""
    for source, path in code_files():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, folder / path)


def passed_variables(environment: Mapping[str, str], more: tuple[str, ...] = ()) -> dict[str, str]:
    """The variables that a job needs, of those that are set; `more` are asked for by name."""
    wanted = {*PASSED, *more}
    return {
        name: value
        for name, value in environment.items()
        if value and (name in wanted or (name.startswith(PASSED_PREFIX) and name not in NOT_PASSED))
    }


def absolute_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """The same with paths that hold on from any folder: the cache, a database of MLflow."""
    held = dict(variables)
    if "COTBERT_CACHE" in held:
        held["COTBERT_CACHE"] = os.path.abspath(held["COTBERT_CACHE"])
    scheme, slashes, path = held.get("MLFLOW_TRACKING_URI", "").partition(":///")
    if scheme == "sqlite" and slashes and path and not os.path.isabs(path):
        held["MLFLOW_TRACKING_URI"] = f"sqlite:///{os.path.abspath(path)}"
    return held
