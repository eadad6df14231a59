"""Fixtures of clusters."""

from __future__ import annotations

from pathlib import Path

import clean_place
import pytest


@pytest.fixture
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clean place of the test's own, and the current folder."""
    return Path(clean_place.clean(monkeypatch, tmp_path))
