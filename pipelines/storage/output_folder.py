"""Output folders of jobs: the same command continues an unfinished job, any other is refused."""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from cotbert_core import files
from cotbert_core.errors import UserError
from cotbert_core.files import output_path, read_json, write_json
from cotbert_core.method_settings import METHOD_SETTINGS
from cotbert_core.settings import flatten_values, with_current_names
from pipelines.reading.data_folder import REFUSED_FILE, UNTRACKED_FILE
from pipelines.runtime.progress import say

RESULT_FILE = "result.json"
SETTINGS_FILE = "settings.json"
RUN_FILE = "mlflow_run_id"
# Files of records that wait for MLflow (pipelines.recording.offline_queue).
KEYS_FILE = "untracked_run.json"
QUEUE_FILES = (UNTRACKED_FILE, KEYS_FILE, REFUSED_FILE)
# Settings that earlier versions did not have, with the value that describes what those versions
# did; None: the default, which differs from method to method.
LATER_SETTINGS = {
    "method.dev_reading": "inference",
    "method.empty_sentence": "bare",
    "method.inference": "whole",
    "method.positive": None,
    "method.rest_length": 128,
    "method.replaced": "template",
}
# What a message advises after a job has ended early, and if its output is unfinished.
AGAIN = "give the same command again"
CONTINUE = f"{AGAIN} to continue"
# Maximum number of changed settings that a message names.
SHOWN = 5
# The digest of the encoders that a job begins with, which earlier versions did not record.
ENCODER_DIGEST = "encoder_digest"
# What a message calls an entry of a record that is no setting.
_WORDS = {
    "corpus_digest": "the corpus",
    "dev_digest": "the dev pairs or labels",
    ENCODER_DIGEST: "the encoder's files",
    "chosen": "the candidates",
}
# A setting on which only the speed of a job depends, so that it may change when the job continues.
CORES = "cpus_per_worker"


def require_empty(path: Path, besides: Collection[str] = ()) -> Path:
    """Return the absolute path; UserError if something is there already or it cannot be written.

    besides: names of files and folders that may be there, whole or unfinished.
    """
    path = output_path(path)
    if re.search("[\ud800-\udfff]", str(path)):  # no JSON file could name it
        raise UserError(f"output {str(path)!r} has a name that is not UTF-8: give another folder")
    check_writable(path)
    files.require_empty(path, [*besides, *(f"{name}.partial" for name in besides)])
    return path


def require_job_folder(path: Path, inside: Collection[str] = ()) -> Path:
    """Return the absolute path; UserError if anything but a begun job is there already, or it
    cannot be written. inside: as for `open_output`."""
    path = output_path(path)
    if not (path / SETTINGS_FILE).is_file():  # whose writing a kill may have cut
        return require_empty(path, [*inside, SETTINGS_FILE])
    check_writable(path)
    return path


def require_new_file(path: Path) -> Path:
    """Return the absolute path; UserError if it exists already or cannot be written."""
    path = files.absolute_path(path)
    if path.is_dir():
        raise UserError(f"output {str(path)!r} is a folder: give a file")
    check_writable(path, as_folder=False)
    if path.exists():
        raise UserError(f"output {str(path)!r} already exists: give a new file")
    return path


def check_writable(path: Path, as_folder: bool = True) -> None:
    """Raise UserError if `path` (absolute) cannot be created, or written to if it is a folder.

    as_folder: whether the output is one; PATH.partial of a killed command is of the same kind.

    It tries to create a folder there and removes it again, since permission bits say nothing about
    a read-only mount, /proc or a quota. Unfinished output is next to the final one, so the parent
    is tested as well.
    """
    if path == path.parent:
        raise UserError(f"output {str(path)!r} is the root folder: give a new folder")
    try:
        places = [next(parent for parent in path.parents if parent.exists())]
        places += [path] if path.is_dir() else []
        for place in places:
            os.rmdir(tempfile.mkdtemp(prefix=".cotbert-", dir=place))
        partial, blocked = path.with_name(path.name + ".partial"), False
        with suppress(FileNotFoundError):  # exists() hides other errors from Python 3.14 on
            blocked = stat.S_ISDIR(partial.stat().st_mode) != as_folder
    except OSError as error:
        raise UserError(
            f"output {str(path)!r} cannot be written ({error.strerror or error}): give a folder "
            "that you can write to"
        ) from None
    if blocked:
        found, needed = ("file", "folder") if as_folder else ("folder", "file")
        raise UserError(
            f"{str(partial)!r} is a {found}, and a {needed} of this name is needed: move the "
            f"{found}, or give another output"
        )


def output_of(options: object) -> Path | None:
    """Return the absolute output of a command's options, None if it has none."""
    output = getattr(options, "output", None)
    return output_path(output) if output else None


def repeats_trials(output: Path) -> bool:
    """Return whether a sweep's result counts trials that failed or did not end, which the same
    command repeats."""
    result = read_json(output / RESULT_FILE) if (output / RESULT_FILE).is_file() else {}
    return bool(result.get("failed") or result.get("unfinished"))


def is_unfinished(output: Path | None) -> bool:
    """Return whether an output (absolute) holds what the same command continues."""
    if output is None:
        return False
    begun = (output / SETTINGS_FILE).is_file() and not (output / RESULT_FILE).is_file()
    return begun or repeats_trials(output) or output.with_name(output.name + ".partial").is_dir()


def check_output(
    path: Path,
    what: str,
    record: Mapping[str, Any],
    inside: Collection[str] = (),
    finished: bool | None = None,
) -> Path:
    """Return the absolute path; UserError if `open_output` would refuse it. Nothing is written."""
    path = output_path(path)
    if not (path / SETTINGS_FILE).is_file():
        return require_job_folder(path, inside)
    if changed := changed_in_words(path / SETTINGS_FILE, record):
        raise UserError(
            f"the {what} in {str(path)!r} was started with other settings ({changed}): give the "
            "same settings or a new folder"
        )
    if (path / RESULT_FILE).is_file() if finished is None else finished:
        raise UserError(f"the {what} in {str(path)!r} is finished: give a new folder")
    check_writable(path)
    return path


def open_output(
    path: Path,
    what: str,
    record: Mapping[str, Any],
    inside: Collection[str] = (),
    finished: bool | None = None,
) -> Path:
    """Create a folder with `record` in its settings.json, or continue the same unfinished job.

    what: the kind of job in a word (run, search). record: everything that a continued job must have
    in common with the one that was started. inside: names of folders that may be there before it is
    started. finished: whether the job in the folder is; None: if it has a result. Raises UserError
    for a folder with anything else.
    """
    path = check_output(path, what, record, inside, finished)
    if (path / SETTINGS_FILE).is_file():
        say(f"continuing the {what} in {path}")
        return path
    path.mkdir(parents=True, exist_ok=True)
    write_json(path / SETTINGS_FILE, record)
    return path


def changed_in_words(file: Path, record: Mapping[str, Any]) -> str:
    """Return the names of the first SHOWN changed settings, as a message shows them, and the number
    of the others; empty without any. An input of many files has as many settings."""
    names = [name.removeprefix("settings.") for name in changed_settings(file, record)]
    shown = (re.sub(r"^files\.", "input ", _WORDS.get(name, name)) for name in names[:SHOWN])
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return f"{', '.join(shown)}{more}"


def changed_settings(file: Path, record: Mapping[str, Any]) -> list[str]:
    """Return the names of the settings that differ from the record in a file.

    A setting that did not exist when the job was started differs unless its value describes what
    the job did then (LATER_SETTINGS).
    """
    before, now = (with_current_names(flatten_values(r)) for r in (read_json(file), record))
    implied = {
        key: _positive_before(now, key) if value is None else value
        for key in now.keys() - before.keys()
        for name, value in LATER_SETTINGS.items()
        if key == name or key.endswith(f".{name}")
    }
    before = {ENCODER_DIGEST: now.get(ENCODER_DIGEST), **implied, **before}
    different = [key for key in {**before, **now} if before.get(key) != now.get(key)]
    # Equal pairs have an equal digest; their name, `dev`, may change with the version or with a
    # file's name.
    same_pairs = "dev_digest" in now and "dev_digest" not in different
    ignored = (CORES, "dev") if same_pairs else (CORES,)
    return [key for key in different if key.rpartition(".")[2] not in ignored]


def _positive_before(settings: Mapping[str, Any], key: str) -> Any:
    """Return the positive of earlier versions for the method beside `key` in flat settings."""
    method = METHOD_SETTINGS[settings[f"{key.removesuffix('positive')}name"]]
    return method.model_fields["positive"].default


def earlier_run(path: Path) -> str | None:
    """Return the id of the MLflow run of the job in this folder, if it has one."""
    file = path / RUN_FILE
    return (file.read_text(encoding="utf-8") or None) if file.is_file() else None
