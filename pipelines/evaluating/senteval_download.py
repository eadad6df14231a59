"""Download the SentEval folder prepared by the authors of SimCSE."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import IO

from cotbert_core.errors import UserError
from pipelines.runtime.progress import Progress, say
from pipelines.storage.output_folder import require_empty

# The archive in SimCSE's repository: STS, SICK and the transfer tasks in SentEval's layout.
ADDRESS = (
    "https://huggingface.co/datasets/princeton-nlp/datasets-for-simcse/resolve/main/senteval.tar"
)
# Folders of an archive that may contain the tasks.
FIRST_TASKS, INNER = "STS", ("", "data", "senteval", "SentEval/data", "downstream")
TIMEOUT_SECONDS = 60
CHUNK_BYTES = 1 << 20


def fetch_folder(folder: Path, address: str = ADDRESS) -> None:
    """Download an archive of SentEval's tasks and write `folder` atomically.

    Raises UserError if the folder is not new or empty, if the address does not answer, or if it
    does not return an archive of these tasks.
    """
    folder = require_empty(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as place:
        archive, tasks = Path(place) / "archive", Path(place) / "tasks"
        _download(address, archive)
        _unpack(archive, tasks, address)
        found = next((tasks / at for at in INNER if (tasks / at / FIRST_TASKS).is_dir()), None)
        if found is None:
            raise UserError(
                f"the archive at {address} has no folder {FIRST_TASKS}: give the address of an "
                "archive of SentEval's tasks with --url"
            )
        if folder.exists():
            folder.rmdir()
        shutil.move(found, folder)


def _download(address: str, archive: Path) -> None:
    say(f"downloading {address}")
    try:
        with (
            urllib.request.urlopen(address, timeout=TIMEOUT_SECONDS) as answer,
            archive.open("wb") as file,
        ):
            _copy(answer, file, int(answer.headers.get("Content-Length") or 0))
    except (OSError, ValueError, HTTPException) as error:  # ValueError: an invalid address
        broken = isinstance(error, HTTPException)  # its text may be a line of the answer alone
        reason = repr(error) if broken else getattr(error, "reason", None) or error
        raise UserError(
            f"{address} cannot be downloaded ({reason}): check the network, name a mirror with "
            "--url, or download it elsewhere and unpack it"
        ) from None


def _copy(answer: IO[bytes], file: IO[bytes], size: int) -> None:
    progress, done = Progress("download", size or None, "bytes"), 0
    while chunk := answer.read(CHUNK_BYTES):
        file.write(chunk)
        done += len(chunk)
        progress.show(done)
    if size and done < size:
        raise OSError(f"{done:,} of {size:,} bytes were received")


def _unpack(archive: Path, folder: Path, address: str) -> None:
    """Unpack an archive; tarfile refuses links out of the folder and other unsafe members."""
    try:
        with tarfile.open(archive) as files:
            files.extractall(folder, filter="data")
    except (tarfile.TarError, EOFError) as error:
        raise UserError(
            f"{address} did not send an archive of files ({error}): give another --url"
        ) from None
