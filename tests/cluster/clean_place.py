"""A place in which no cluster, token, store or key of the machine's is seen."""

from __future__ import annotations

import forked

NAMES = (
    *("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"),
    *("RAY_AUTH_MODE", "MLFLOW_TRACKING_URI", "HF_TOKEN", "OPENAI_API_KEY"),
)


def clean(patch, folder):
    """The current folder, with a home and a cache in it; no variable of Ray's is set."""
    for name in NAMES:
        patch.delenv(name, raising=False)
    patch.setenv("HOME", str(folder / "home"))
    patch.setenv("COTBERT_CACHE", str(folder / "cache"))
    patch.chdir(folder)
    forked.know_parents(patch)
    return folder
