"""Folders with short paths for Ray's logs and sockets, removed when their command has ended."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from cotbert_core.errors import UserError

# A socket's path has at most 107 characters on Linux. Ray's socket paths are up to 66 characters
# longer than its folder's, which is 2 or 3 longer than the private folder's.
LONGEST_FOLDER = 38
PREFIX, RANDOM_BYTES = "cotbert-", 4


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

    After a failure (not a UserError or a stop by a signal) it is kept for its logs. A killed
    command leaves its folder, which the next command removes.
    """
    folder = ray_folder(f"{PREFIX}{secrets.token_hex(RANDOM_BYTES)}")
    _remove_abandoned(folder.parent)
    folder.mkdir(mode=0o700, parents=True)
    failed = False
    with _locked(folder):
        try:
            yield folder
        except Exception as error:
            failed = not isinstance(error, UserError)
            raise
        finally:
            if failed:
                _lock_path(folder).unlink(missing_ok=True)  # no command removes it now
            else:
                shutil.rmtree(folder, ignore_errors=True)


def _lock_path(folder: Path) -> Path:
    """Return the lock file of a folder, named by host: some file systems lock per machine only."""
    return folder / f"{socket.gethostname()}.lock"


def _locked(folder: Path) -> IO[bytes]:
    """Return the open lock file of a folder; the lock ends when it is closed or this process ends.

    The file gets its name only when it is locked, and other commands do not touch a folder without
    a lock file. Child processes do not inherit it.
    """
    file = (folder / "unlocked").open("wb")
    with suppress(OSError):  # a file system without locks: the folder stays after a kill
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(file.name, _lock_path(folder))
    return file


def _remove_abandoned(parent: Path) -> None:
    """Remove this user's folders whose commands were killed."""
    for folder in parent.glob(f"{PREFIX}{'[0-9a-f]' * 2 * RANDOM_BYTES}"):
        with suppress(OSError):  # no lock file, a lock that is held, or removed meanwhile
            if folder.lstat().st_uid == os.getuid() and not folder.is_symlink():
                with _lock_path(folder).open("rb") as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if not _is_in_use(folder):
                        shutil.rmtree(folder)


def _is_in_use(folder: Path) -> bool:
    """Return whether a process names the folder in its command line, as Ray's processes do.

    Ray's processes outlive a killed command briefly, and a starting worker would create the folder
    again.
    """
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended meanwhile
            if bytes(folder) in file.read_bytes():
                return True
    return False
