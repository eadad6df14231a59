"""Delete the checkpoints of a successful run.

A checkpoint includes the optimizer's state, so it is three times as large as its model, and a run
keeps two or three. A finished run is never continued, so they are useless once result.json exists.
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

    output: the run's folder, with model/ and result.json. folder: the checkpoints' folder. best:
    the model's checkpoint. The run's files are flushed to disk first, so a power failure cannot
    lose both.
    """
    if kept.keep_checkpoints == "all":
        return
    try:
        _force_to_disk(output)
    except OSError as error:
        say(f"warning: {output} cannot be flushed to disk ({error}): its checkpoints are kept")
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
