"""Fixtures of clusters: a cache and a home of the test's own, and no cluster named."""

from __future__ import annotations

from pathlib import Path

import pytest

NAMES = (
    *("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"),
    *("RAY_AUTH_MODE", "MLFLOW_TRACKING_URI", "HF_TOKEN", "OPENAI_API_KEY"),
)


@pytest.fixture
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a home and a cache in it; no variable of Ray's is set."""
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COTBERT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path
