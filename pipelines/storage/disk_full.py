"""Recognise a full disk in the error that ended a job, and describe it in one sentence.

Ray, torch, pyarrow and MLflow each wrap the system's error in their own, which names a task, an
actor or a position in an archive instead of the disk.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from cotbert_core.messages.full_disk import kept_deleted, means_full_disk
from pipelines.storage.output_folder import AGAIN, CONTINUE, is_unfinished, output_of
from pipelines.storage.paths import cache_folder

# A disk with a smaller share of free space is full.
LITTLE = 0.02
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def disk_full(error: BaseException, options: object) -> str | None:
    """Return a sentence that says which disk is full and how to continue; None if no disk is full.

    options: those of the command; its output is used if the error names no file.
    """
    full = [one for one in chain(error) if means_full_disk(one)]
    if not full:
        return None
    output = output_of(options)
    named = [str(name) for one in full if (name := getattr(one, "filename", None))]
    deleted = next(filter(None, map(kept_deleted, chain(error))), None)
    place = _existing(Path(named[0])) if named else _fullest(output, deleted)
    usage = shutil.disk_usage(place)
    was_deleted = deleted is not None and place == _existing(deleted)
    now = "now that what was half written is deleted" if was_deleted else "now"
    # Perhaps all of the disk is free. Of a worker's error only the text may be left.
    if was_deleted or not _is_full(usage):
        now += ", and more is needed"
    return (
        f"no space left on the disk of {str(Path(named[0]) if named else place)!r} "
        f"({file_system(place)}): {_bytes(usage.free)} of {_bytes(usage.total)} are free {now}; "
        f"free some space there, then {CONTINUE if is_unfinished(output) else AGAIN}"
    )


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and all errors behind it: causes, contexts, members of groups, and errors in
    the attributes of Ray's errors (of a task, of each worker, of a start)."""
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
    """Return the type and the mount point of an existing path's file system."""
    mounts = psutil.disk_partitions(all=True)[::-1]  # of several at a place the last counts
    above = [one for one in mounts if place.is_relative_to(one.mountpoint)]
    found = max(above, key=lambda one: len(one.mountpoint), default=None)
    return f"{found.fstype} at {found.mountpoint}" if found else "its file system"


def _fullest(output: Path | None, deleted: Path | None) -> Path:
    """Return the place with the least free space of all places that a job writes to.

    These are its output, the current folder with the tracking store, the folder of temporary files,
    which Ray also uses, and the cache. If two are equal, the earlier one is returned. deleted: the
    folder of half written files that is gone; it was on the full disk unless another is full still.
    """
    places = [output] if output else []
    places += [Path.cwd(), Path(tempfile.gettempdir()), cache_folder()]
    place = min(map(_existing, places), key=lambda place: shutil.disk_usage(place).free)
    is_full = _is_full(shutil.disk_usage(place))
    return place if is_full or deleted is None else _existing(deleted)


def _is_full(usage: Any) -> bool:
    return bool(usage.free < LITTLE * usage.total)


def _existing(path: Path) -> Path:
    """Return the path with its links resolved, or the nearest existing folder above it."""
    path = path.expanduser().absolute()
    return next(place for place in (path, *path.parents) if os.path.exists(place)).resolve()


def _bytes(count: float) -> str:
    for unit in _UNITS:
        if count < 1024 or unit == _UNITS[-1]:
            break
        count /= 1024
    return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
