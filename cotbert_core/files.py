"""Folders and files that are whole or not there at all."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cotbert_core.errors import UserError

# More is no configuration or manifest; as Python objects JSON takes up to 25 times as much.
MOST_JSON_BYTES = 64 << 20


def require_empty(path: Path) -> None:
    """UserError when something is at `path` already; an empty folder is nothing."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f"output {str(path)!r} already holds something: give a new folder")


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """A folder PATH.partial to write into, which becomes PATH when the block ends well.

    What an earlier, interrupted job left in PATH.partial is discarded.
    """
    require_empty(path)
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
        if path.exists() and not path.is_file():  # a device has no end
            raise OSError("it is no file")
        with path.open("rb") as file:
            data = file.read(MOST_JSON_BYTES + 1)
        if len(data) > MOST_JSON_BYTES:
            raise ValueError(f"it has more than {MOST_JSON_BYTES:,} bytes")
        return json.loads(data.decode("utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{str(path)!r} cannot be read as JSON ({error})") from None
    except RecursionError:
        raise UserError(f"{str(path)!r} cannot be read as JSON (it is nested too deep)") from None


def read_object(path: Path) -> dict[str, Any]:
    """The object of a JSON file; UserError when it cannot be read or holds another value."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise UserError(f"{str(path)!r} holds no JSON object: copy it again from where it was made")
    return value


def part_of(folder: Path, relative: str) -> Path:
    """The path of something in a folder; UserError where it is, or is a link to, a place outside.

    A folder of the hub's cache holds links to blobs beside it, which are its own.
    """
    home = folder.resolve()
    roots = [home, home.parent.parent / "blobs"] if home.parent.name == "snapshots" else [home]
    path = folder / relative
    if ".." in Path(relative).parts or not any(map(path.resolve().is_relative_to, roots)):
        raise UserError(
            f"{str(folder)!r} names {relative!r}, which lies outside the folder and is not read: "
            "copy what is needed into the folder"
        )
    return path
