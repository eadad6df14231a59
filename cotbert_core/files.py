"""Folders and files that are written completely or not at all, and JSON files."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cotbert_core.errors import UserError
from cotbert_core.messages.full_disk import keep_deleted

# No configuration or manifest is larger; as Python objects JSON takes up to 25 times as much.
MOST_JSON_BYTES = 64 << 20
# The only folder in PATH.partial while `atomic_folder` writes it, by which it knows its own; beside
# it is only what an `atomic_folder` of it writes.
UNFINISHED = "unfinished-folder"


def absolute_path(path: str | Path) -> Path:
    """Return the absolute path. `..` is resolved, which shortens messages, except behind a link,
    where it names another folder."""
    path = Path(path).expanduser().absolute()
    shorter = Path(os.path.normpath(path))
    # Path.resolve raises an error for a link that leads to itself.
    return shorter if os.path.realpath(shorter) == os.path.realpath(path) else path


def output_path(path: str | Path) -> Path:
    """Return an output's absolute path; of a link the path that it leads to, since a folder cannot
    be renamed to a link. UserError if that is a link to itself."""
    path = absolute_path(path)
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    if target.is_symlink():
        raise UserError(f"output {str(path)!r} is a link that leads nowhere: give a new folder")
    return target


def require_empty(path: Path, besides: Collection[str] = ()) -> None:
    """Raise UserError if `path` exists, unless it is a folder that is empty besides these names."""
    if path.exists() and (not path.is_dir() or any(p.name not in besides for p in path.iterdir())):
        raise UserError(f"output {str(path)!r} already holds something: give a new folder")


def require_replaceable(path: Path) -> None:
    """Raise UserError unless a finished folder can take the place of `path` (absolute)."""
    require_empty(path)
    inside = path.is_dir() and Path.cwd().is_relative_to(path)
    if inside or os.path.ismount(path):
        raise UserError(
            f"output {str(path)!r} {'holds the current folder' if inside else 'is a mount point'}, "
            "and the finished output takes its place: give a new folder in it"
        )


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a folder in PATH.partial, which is renamed to PATH if the block ends without an error.

    What an interrupted job left there is deleted; UserError if PATH.partial is something else.
    """
    path = output_path(path)
    require_replaceable(path)
    partial = path.with_name(path.name + ".partial")
    unfinished = partial / UNFINISHED
    _remove_unfinished(partial)
    unfinished.mkdir(parents=True)
    try:
        yield unfinished
    except BaseException as error:
        keep_deleted(error, partial)
        shutil.rmtree(partial, ignore_errors=True)
        raise
    if path.exists():
        path.rmdir()
    unfinished.rename(path)
    partial.rmdir()


def _remove_unfinished(partial: Path) -> None:
    """Remove what an interrupted `atomic_folder` left; UserError for anything else."""
    own = (UNFINISHED, f"{UNFINISHED}.partial")
    ours = partial.is_dir() and all(inside.name in own for inside in partial.iterdir())
    if partial.exists() and not ours:
        raise UserError(
            f"{str(partial)!r} holds the work of another command or your own files, and a folder "
            "of this name is needed: move it, or give another output"
        )
    shutil.rmtree(partial, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Write a file completely or not at all, and make its folder if it does not exist."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """Return the value of a JSON file; UserError if it cannot be read."""
    try:
        if path.exists() and not path.is_file():  # reading a device would never end
            raise OSError("it is not a file")
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
    """Return the object in a JSON file; UserError if it cannot be read or is another value."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise UserError(f"{str(path)!r} is not a JSON object: copy it again from where it was made")
    return value


def read_text(path: Path, what: str) -> str:
    """Return the text of a user's file, without a byte order mark; UserError if it has none.

    what: the kind of file, for the message.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        byte = f"byte {error.start:,} is {error.object[error.start]:#04x}"
        raise UserError(f"{what} {str(path)!r} is not UTF-8 ({byte}): save it as UTF-8") from None
    except OSError as error:
        raise UserError(
            f"{what} {str(path)!r} cannot be read ({error}): give a text file"
        ) from None


def digest(paths: Iterable[Path]) -> str:
    """Return a short hash of the contents of files, in their order."""
    total = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()[:16]


def part_of(folder: Path, relative: str) -> Path:
    """Return the path of a file in a folder; UserError if it, or its link's target, is outside.

    The links of a folder in the hub's cache may point to the blobs of the same encoder.
    """
    home = folder.resolve()
    roots = [home, home.parent.parent / "blobs"] if home.parent.name == "snapshots" else [home]
    path = folder / relative
    if ".." in Path(relative).parts or not any(map(path.resolve().is_relative_to, roots)):
        raise UserError(
            f"{str(folder)!r} refers to {relative!r}, which is outside the folder and is not read: "
            "copy the file into the folder"
        )
    return path


def home_folder() -> Path:
    """Return the user's home folder; UserError if HOME is unset and the system knows none."""
    try:
        return Path.home()
    except RuntimeError:
        raise UserError(
            f"HOME is not set and user {os.getuid()} has no home folder: set HOME to a folder that "
            "you can write to"
        ) from None
