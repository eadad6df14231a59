"""Output folders of jobs: an earlier run is never overwritten."""

from __future__ import annotations

import os
from pathlib import Path

from cotbert_core import files
from cotbert_core.errors import UserError

RESULT_FILE = "result.json"


def check_free(path: Path) -> Path:
    """The absolute path; UserError when something is there already."""
    path = Path(path).expanduser().absolute()
    files.check_free(path)
    for parent in path.parents:
        if parent.exists():
            if not parent.is_dir() or not os.access(parent, os.W_OK):
                raise UserError(f"output {str(path)!r} cannot be written: {parent} is not writable")
            break
    return path
