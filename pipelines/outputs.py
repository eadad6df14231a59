"""Output folders: an earlier run is never overwritten, half-written output never looks finished."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cotbert_core.errors import UserError

RESULT_FILE = "result.json"


def check_free(path: Path) -> Path:
    """The absolute path; UserError when something is there already."""
    path = Path(path).expanduser().absolute()
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f"output {str(path)!r} already holds something: give a new folder")
    for parent in path.parents:
        if parent.exists():
            if not parent.is_dir() or not os.access(parent, os.W_OK):
                raise UserError(f"output {str(path)!r} cannot be written: {parent} is not writable")
            break
    return path


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A folder PATH.partial to write into, which becomes PATH when the block ends well.

    What an earlier, interrupted job left in PATH.partial is discarded.
    """
    path = check_free(path)
    partial = path.with_name(path.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    if path.exists():
        path.rmdir()
    partial.rename(path)


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """The value of a JSON file; UserError when it cannot be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{str(path)!r} cannot be read as JSON ({error})") from None
