"""Fixtures of the jobs: an MLflow store of the test's own, and Ray."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

MLFLOW_STORE = "MLFLOW_TRACKING_URI"


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MLflow database with its tables made, which takes seconds, and nothing in them."""
    from mlflow import MlflowClient

    path = tmp_path_factory.mktemp("store") / "mlflow.db"
    MlflowClient(tracking_uri=f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def own_store(empty_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The client of a store in tmp_path, which is the current folder and the default store's."""
    from mlflow import MlflowClient

    monkeypatch.delenv(MLFLOW_STORE, raising=False)
    monkeypatch.chdir(tmp_path)
    shutil.copy(empty_store, tmp_path / "mlflow.db")
    return MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}")


@pytest.fixture(scope="module")
def ray_here() -> Iterator[None]:
    """Ray for a module: jobs use a session that is there and leave it alone."""
    from pipelines.ray_session import ray_session

    with ray_session():
        yield
