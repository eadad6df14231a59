"""Folders with short paths for Ray's logs and sockets."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cotbert_core.errors import UserError

# A socket's path has at most 107 characters on Linux. Ray's socket paths are up to 66 characters
# longer than its folder's, which is 2 or 3 longer than the private folder's.
LONGEST_FOLDER = 38
PREFIX, RANDOM = "cotbert-", 8  # tempfile adds that many characters
# Bytes. A Ray of two workers writes 0.1 to 0.4 MB in a short job.
LEAST_FREE = 1 << 20
# A file in each private folder that its job has locked.
OWNER = "owner"


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
    """Make a folder that other users cannot open, and remove it after the block.

    The folders of this user's jobs that were killed are removed first. Raises OSError if the disk
    is full: Ray's workers cannot start without their logs, and Ray starts new ones without end.
    """
    parent = ray_folder(PREFIX + "x" * RANDOM).parent
    parent.mkdir(parents=True, exist_ok=True)
    _remove_left(parent)
    if shutil.disk_usage(parent).free < LEAST_FREE:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(parent))
    # Ray's last processes may still write there.
    with (
        tempfile.TemporaryDirectory(
            prefix=PREFIX, dir=parent, ignore_cleanup_errors=True
        ) as folder,
        _locked_owner(Path(folder)),
    ):
        yield Path(folder)


@contextmanager
def _locked_owner(folder: Path) -> Iterator[None]:
    """Hold a lock on the folder's OWNER, which the system releases when this process ends."""
    unlocked = folder / f"{OWNER}.new"  # another job must not find it before it is locked
    with unlocked.open("w") as file:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
            unlocked.rename(folder / OWNER)
        yield


def _remove_left(parent: Path) -> None:
    """Remove the private folders whose job has ended without doing so."""
    for owner in parent.glob(f"{PREFIX}{'?' * RANDOM}/{OWNER}"):
        with suppress(OSError), owner.open() as file:  # of another user, or removed meanwhile
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(owner.parent, ignore_errors=True)
