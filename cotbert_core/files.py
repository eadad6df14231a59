"""Folders and files that are whole or not there at all."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cotbert_core.errors import UserError


def check_free(path: Path) -> None:
    """UserError when something is at `path` already; an empty folder is nothing."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f"output {str(path)!r} already holds something: give a new folder")


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A folder PATH.partial to write into, which becomes PATH when the block ends well.

    What an earlier, interrupted job left in PATH.partial is discarded.
    """
    check_free(path)
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
    """Write a file whole or not at all, its folder too where there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
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
