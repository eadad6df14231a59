"""A full disk, found in whatever error a job ended with and said in one sentence.

Ray, torch, pyarrow and MLflow each wrap the system's error in their own: what a user reads would
name a task, an actor or a place in an archive.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cotbert_core.messages.full_disk import means_full_disk
from pipelines.storage.output_folder import SETTINGS_FILE

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def disk_full(error: BaseException, options: object) -> str | None:
    """Return what happened, where, and how to go on; None where no disk was full.

    options: those of the command; its output is looked at if the error names no file.
    """
    full = [one for one in chain(error) if means_full_disk(one)]
    if not full:
        return None
    output = _output(options)
    named = [str(name) for one in full if (name := getattr(one, "filename", None))]
    place = _existing(Path(named[0])) if named else _fullest(output)
    usage = shutil.disk_usage(place)
    return (
        f"no space left on the disk of {str(Path(named[0]) if named else place)!r} "
        f"({file_system(place)}): {_bytes(usage.free)} of {_bytes(usage.total)} are free now; "
        f"make room there, and {_next_step(options, output)}"
    )


def chain(error: BaseException) -> Iterator[BaseException]:
    """The error and all that it came from or holds: causes, contexts, groups, and what the errors
    of Ray hold as attributes (of a task, of each worker, of a start)."""
    seen: set[int] = set()
    left: list[Any] = [error]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            left += one.values()
        elif isinstance(one, list | tuple):
            left += one
        elif isinstance(one, BaseException) and id(one) not in seen:
            seen.add(id(one))
            yield one
            left += [one.__cause__, one.__context__, one.args, *vars(one).values()]
            left += getattr(one, "exceptions", ())


def file_system(place: Path) -> str:
    """The type of the file system of an existing path, and where it is mounted (Linux)."""
    found = ("", "")
    try:
        lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, mount, kind, *_ = line.split(" ")
        mount = mount.replace("\\040", " ")
        if place.is_relative_to(mount) and len(mount) >= len(found[0]):
            found = (mount, kind)
    return f"{found[1]} at {found[0]}" if found[0] else "its file system"


def _output(options: object) -> Path | None:
    output = getattr(options, "output", None)
    return Path(output).expanduser().absolute() if output else None


def _fullest(output: Path | None) -> Path:
    """Of the places that a job writes to (its output, the tracking store of this folder, temporary
    files, which are Ray's too) that with the least room; of equals the output's."""
    places = [output] if output else []
    places += [Path.cwd(), Path(tempfile.gettempdir())]
    return min(map(_existing, places), key=lambda place: shutil.disk_usage(place).free)


def _existing(path: Path) -> Path:
    """The path with its links followed, or the nearest folder above it that is there."""
    path = path.expanduser().absolute()
    return next(place for place in (path, *path.parents) if os.path.exists(place)).resolve()


def _next_step(options: object, output: Path | None) -> str:
    if output is not None:
        if hasattr(options, "resume") and (output / SETTINGS_FILE).is_file():
            return "the same command with --resume goes on"
        if output.with_name(output.name + ".partial").exists():
            return "the same command goes on with what is done"
    return "give the same command again"


def _bytes(count: float) -> str:
    for unit in _UNITS:
        if count < 1024 or unit == _UNITS[-1]:
            break
        count /= 1024
    return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
