"""Detection of errors that mean a full disk, which each library words differently."""

from __future__ import annotations

import errno
import re
from contextlib import suppress
from pathlib import Path

FULL = (errno.ENOSPC, errno.EDQUOT)
# The messages of the system, of Rust, SQLite and Ray, of torch if its archive is shorter than what
# it wrote, and of OpenVINO when it writes a graph.
_WORDS = re.compile(
    r"no space left on device|disk quota exceeded|os error 28\b|database or disk is full"
    r"|local disk is full|unexpected pos \d+ vs|PytorchStreamWriter failed writing"
    r"|basic_ios::clear: iostream error",
    re.IGNORECASE,
)


def means_full_disk(error: BaseException) -> bool:
    """Return whether an error means that a disk is full; its causes are not checked."""
    if isinstance(error, OSError) and error.errno in FULL:
        return True
    return _WORDS.search(str(error)) is not None


def keep_deleted(error: BaseException, folder: Path) -> None:
    """Keep in an error the folder of half written files that is deleted because of it."""
    with suppress(AttributeError):
        error.deleted_folder = folder  # type: ignore[attr-defined]


def kept_deleted(error: BaseException) -> Path | None:
    """Return the folder that an error keeps; None without one."""
    return getattr(error, "deleted_folder", None)
