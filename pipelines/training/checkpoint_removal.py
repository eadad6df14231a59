"""Delete the checkpoints of a run that has ended well.

A checkpoint has the optimizer's state, so it is three times as large as its model, and a run keeps
two or three. A finished run is never continued, so they are of no use once result.json is written.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from pipelines.options.kept_files import KeptFiles
from pipelines.runtime.progress import say
from pipelines.storage.output_folder import RESULT_FILE


def remove_checkpoints(output: Path, folder: Path, kept: KeptFiles, best: Path) -> None:
    """Delete the checkpoints of a finished run that are not kept.

    output: the run's folder, with model/ and result.json. folder: that of the checkpoints. best:
    the checkpoint of the model. Nothing is deleted before the files of the run are on the disk, so
    that a machine that loses power cannot lose both.
    """
    if kept.keep_checkpoints == "all":
        return
    try:
        _force_to_disk(output)
    except OSError as error:
        say(f"warning: {output} cannot be forced to the disk ({error}): its checkpoints are kept")
        return
    if kept.keep_checkpoints == "none":
        shutil.rmtree(folder, ignore_errors=True)
        return
    for path in folder.glob("step-*"):
        if path.name != best.name:
            shutil.rmtree(path, ignore_errors=True)


def _force_to_disk(output: Path) -> None:
    for path in (*(output / "model").rglob("*"), output / RESULT_FILE, output):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
