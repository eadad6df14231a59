"""Send files to an MLflow run, but only files inside the job's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

# Maximum number of files named in a message.
NAMED = 5


class RefusedError(Exception):
    """A record that the store refuses, or that names a file outside the job's folder."""


def send_artifact(client: Any, run_id: str, name: str, folder: Path | None) -> None:
    """Send a file or a folder to the store.

    folder: the folder that `name` is relative to and must be inside of; None if `name` is an
    absolute path.
    """
    path = (folder or Path()) / name
    if folder is not None and not path.resolve().is_relative_to(folder.resolve()):
        raise RefusedError(f"{path} is outside the job's folder and is not sent")
    if not path.exists():
        raise RefusedError(f"{path} no longer exists")
    foreign = [] if folder is None else foreign_files(path, folder.resolve())
    if foreign:
        _send_all_but(client, run_id, path, foreign)
    elif path.is_dir():
        client.log_artifacts(run_id, str(path), path.name)
    else:
        client.log_artifact(run_id, str(path))


def foreign_files(path: Path, home: Path) -> list[Path]:
    """Return the paths in an artifact (a file or a folder) that are not files in the folder `home`.

    home: a resolved path. Links to folders are included, since not all of MLflow's stores follow
    them, and so are pipes and devices, which have no end.
    """
    inside = (p for p in path.rglob("*") if p.is_symlink() or not p.is_dir())
    found = inside if path.is_dir() else [path]
    return sorted(p for p in found if not (p.is_file() and p.resolve().is_relative_to(home)))


def _send_all_but(client: Any, run_id: str, path: Path, foreign: list[Path]) -> None:
    """Send the files of a folder except `foreign`, then raise a RefusedError that names these."""
    refused = set(foreign)
    for file in sorted(p for p in path.rglob("*") if p.is_file() and p not in refused):
        client.log_artifact(run_id, str(file), file.parent.relative_to(path.parent).as_posix())
    named = ", ".join(map(str, foreign[:NAMED]))
    more = f" and {len(foreign) - NAMED} more" if len(foreign) > NAMED else ""
    raise RefusedError(
        f"{len(foreign)} paths in {path} lead outside the job's folder or are not files, and "
        f"are not sent: {named}{more}"
    )
