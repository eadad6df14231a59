"""Folders of training runs, brought into states that only a kill leaves."""

from __future__ import annotations

import shutil
from pathlib import Path


def unfinished_copy(finished: Path, copy: Path) -> Path:
    """A finished run as it was between its last checkpoint and its model."""
    shutil.copytree(finished, copy)
    for name in ("result.json", "report.html"):
        (copy / name).unlink()
    shutil.rmtree(copy / "model")
    return copy
