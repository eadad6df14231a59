"""Folders with short paths for Ray's logs and sockets."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cotbert_core.errors import UserError

# A socket's path has at most 107 characters on Linux. Ray's socket paths are up to 66 characters
# longer than its folder's, which is 2 or 3 longer than the private folder's.
LONGEST_FOLDER = 38
PREFIX, RANDOM = "cotbert-", 8  # tempfile adds that many characters


def ray_folder(name: str) -> Path:
    """Return a short path for Ray's logs and sockets; UserError if RAY_TMPDIR is too long."""
    requested = os.environ.get("RAY_TMPDIR")
    folder = Path(requested or tempfile.gettempdir()) / name
    if len(str(folder)) <= LONGEST_FOLDER:
        return folder
    if requested:
        raise UserError(
            f"RAY_TMPDIR is {requested!r}, too long for the paths of Ray's sockets: give at most "
            f"{LONGEST_FOLDER - len(name) - 1} characters"
        )
    return Path("/tmp") / name


@contextmanager
def private_folder() -> Iterator[Path]:
    """Make a folder that other users cannot open, and remove it after the block."""
    parent = ray_folder(PREFIX + "x" * RANDOM).parent
    parent.mkdir(parents=True, exist_ok=True)
    # Ray's last processes may still write there.
    with tempfile.TemporaryDirectory(
        prefix=PREFIX, dir=parent, ignore_cleanup_errors=True
    ) as folder:
        yield Path(folder)
