"""The folder for files that can be created again, the folder that relative paths refer to, and a
lock of a folder."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from cotbert_core.errors import UserError
from cotbert_core.files import home_folder

# The environment variable of a submitted job with the folder in which `cotbert submit` was called.
SUBMITTED_FROM = "COTBERT_SUBMITTED_FROM"
# MLflow's name for a store that is neither an address nor a folder.
DATABRICKS = "databricks"


def cache_folder() -> Path:
    """Return COTBERT_CACHE, or `cotbert` in the user's cache folder if it is unset or empty."""
    if own := os.environ.get("COTBERT_CACHE"):
        return Path(own).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or home_folder() / ".cache").absolute() / "cotbert"


def absolute_store(address: str) -> str:
    """Return an address of MLflow with its path made absolute: a SQLite database's or a folder's.

    Trials and submitted jobs have other current folders.
    """
    # In an address a `?` begins its options, and `%3F` is a `?`.
    here = re.sub(r"\?|%(?=[0-9A-Fa-f]{2})", lambda sign: quote(sign[0]), os.getcwd())
    for scheme in ("sqlite:///", "file:"):
        path = address.removeprefix(scheme)
        if path not in (address, "", ":memory:") and not path.startswith("/"):
            return f"{scheme}{os.path.normpath(os.path.join(here, path))}"
    return address if ":" in address or address == DATABRICKS else os.path.abspath(address)


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Let other processes that lock the folder wait during the block; it is made if missing."""
    folder.mkdir(parents=True, exist_ok=True)
    opened = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # without file locks only one process may use the folder
            fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


def enter_folder(paths: Iterable[Path]) -> None:
    """Go to the folder in which `cotbert submit` was called, if this process is a submitted job.

    The folder is made if it is missing. Raises UserError if that fails, as for a home folder of
    another machine, and one of the job's `paths` is relative.
    """
    folder = os.environ.pop(SUBMITTED_FROM, None)
    if folder is None:
        return
    try:
        os.makedirs(folder, exist_ok=True)
        os.chdir(folder)
    except OSError as error:
        for path in paths:
            if not path.is_absolute():
                raise UserError(
                    f"{str(path)!r} is relative to {folder!r}, where the job was submitted, and "
                    f"the cluster cannot open that folder ({error.strerror}): give an absolute "
                    "path that all nodes see"
                ) from None
