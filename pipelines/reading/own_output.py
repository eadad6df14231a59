"""Output of cotbert and models inside an input folder, which are not read with the folder.

A job whose output is in its input folder would otherwise read what it has written when it
continues.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pipelines.reading.data_folder import DATA_FOLDER, FIRST_PART

# What an unfinished job has added to its input folder if its output is there: its lock, its work
# (pipelines.storage.resumable_output) and the default store of MLflow. They are neither input nor
# counted, so that the job finds the same files when it continues.
_UNFINISHED = re.compile(
    r"\.lock$|\.partial($|/record\.json|/[0-9a-f]{16}(\.deleted)?($|/))"
    r"|/mlflow\.db|/mlartifacts($|/)"
)
# Paths in an output folder, each with a file that must be in the folder too: a corpus or
# embeddings; a training, a sweep, a comparison or an adaptation, finished or not; a model.
_OUTPUTS = (
    (re.compile(rf"(.+)/{DATA_FOLDER}/{FIRST_PART}[^/]*"), "manifest.json"),
    (
        re.compile(r"(.+)/(?:(?:metrics|untracked)\.jsonl|result\.json|corpus/manifest\.json)"),
        "settings.json",
    ),
    (re.compile(r"(.+)/(?:README\.md|vocab\.txt|merges\.txt)"), "tokenizer_config.json"),
)


def without_output(
    paths: Sequence[str], folder: str, is_walked: bool
) -> tuple[list[str], list[str]]:
    """Return the paths outside of models and of output of cotbert, and the folders left out.

    is_walked: whether the paths are all files below the folder; else no folder is left out.
    """
    left = [path for path in paths if not _UNFINISHED.search(path, len(folder))]
    known = _output_folders(left, f"{folder.rstrip('/')}/") if is_walked else set()
    inside = tuple(f"{output}/" for output in known)
    outermost = [output for output in sorted(known) if not output.startswith(inside)]
    return [path for path in left if not path.startswith(inside)], outermost


def is_output(folder: str, paths: Sequence[str]) -> bool:
    """Return whether a folder is output of cotbert or a model. paths: all files in it."""
    home = folder.rstrip("/")
    return home in _output_folders(paths, home)


def _output_folders(paths: Sequence[str], inside: str) -> set[str]:
    """Return the output folders whose paths begin with `inside`."""
    names = set(paths)
    matches = (
        (match[1], beside)
        for pattern, beside in _OUTPUTS
        for path in paths
        if (match := pattern.fullmatch(path))
    )
    return {
        output
        for output, beside in matches
        if output.startswith(inside) and f"{output}/{beside}" in names
    }
