"""The folder for files that can be created again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return COTBERT_CACHE if it is set, otherwise `cotbert` in the user's cache folder."""
    if "COTBERT_CACHE" in os.environ:
        return Path(os.environ["COTBERT_CACHE"]).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")).absolute() / "cotbert"
