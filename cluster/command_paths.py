"""Check the arguments of a submitted command and make its paths absolute.

A job runs in another folder, on the cluster, but relative paths refer to the caller's folder. The
job itself checks that the nodes see that folder.
"""

from __future__ import annotations

import argparse
import glob
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cotbert_core.errors import UserError
from pipelines.options.declare import Declared
from pipelines.options.parser import TypeOf, value_type

if TYPE_CHECKING:
    from cotbert_core.settings import TrainSettings

# Commands that are not submitted.
LOCAL = ("cluster", "submit")
_URI = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:/|(docstrings|hf|models|runs):")
# The settings that name an encoder, as given to --set.
ENCODER_SETTINGS = (
    "encoder=",
    "method.complement=",
    "method.generator=",
    "method.teacher=",
    "method.second_teacher=",
)
_FOLDER_OF = ("sick:",)


@dataclass(frozen=True)
class CommandLine:
    """Functions of the `cotbert` command line, passed in since it imports this package.

    parse: parses arguments into the given values. parser: returns a command's parser, given a
    function that returns the `type` of each option. trainings: returns the settings of the
    trainings that a command starts.
    """

    parse: Callable[[Sequence[str]], Mapping[str, Any]]
    parser: Callable[[str, TypeOf], argparse.ArgumentParser]
    trainings: Callable[[str, Mapping[str, Any]], Sequence[TrainSettings]]


class _Word(str):
    """An argument of the command line with its position."""

    place: int


def parse(words: Sequence[str], line: CommandLine) -> Mapping[str, Any]:
    """Return the values of the command's options; a mistake ends as in `cotbert` itself."""
    if not words:
        raise UserError("no command is given: write it after `--`, as in `-- train RECIPE ...`")
    if words[0] == "cotbert":
        raise UserError("the command begins with 'cotbert': leave that word out")
    if words[0] in LOCAL:
        raise UserError(f"{words[0]!r} runs on this machine: submit another command")
    given = line.parse(list(words))
    if words[0] == "quickstart" and "output" not in given:
        raise UserError("quickstart has no --output: give a folder that outlives the job")
    return given


def absolute(words: Sequence[str], line: CommandLine) -> tuple[list[str], list[str]]:
    """Return the command with absolute paths, and the list of its file system paths.

    Raises UserError for a relative input that does not exist.
    """
    split = [part for word in words for part in _parts(word)]
    marked = [_Word(text) for text in split]
    for place, word in enumerate(marked):
        word.place = place
    noted: dict[int, Declared] = {}
    parser = line.parser(words[0], lambda one: _noting(one, noted) or value_type(one))
    parser.parse_args(marked[1:])
    new = list(split)
    for place, one in sorted(noted.items()):
        new[place] = _absolute(split[place], one)
    paths = (_path_in(new[place]) for place in sorted(noted))
    return new, [path for path in dict.fromkeys(paths) if os.path.isabs(path)]


def _parts(word: str) -> tuple[str, ...]:
    """Return `--option=value` as two arguments, as argparse reads it."""
    option, sign, value = word.partition("=")
    if word.startswith("--") and sign and not value.startswith("-"):
        return option, value
    return (word,)


def _noting(one: Declared, noted: dict[int, Declared]) -> Callable[[str], str] | None:
    """Return an argparse type that records the positions of an option's values, if they may be
    paths; None for other options."""

    def note(word: str) -> str:
        if isinstance(word, _Word):
            noted[word.place] = one
        return word

    return note if one.kind is Path or one.option.path else None


def _absolute(text: str, one: Declared) -> str:
    """Return a value with its path made absolute and the text around the path unchanged."""
    is_path = one.kind is Path
    if _URI.match(text) and not is_path:
        return text
    before, path, after = "", text, ""
    if one.name == "set":
        before, sign, path = text.partition("=")
        before += sign
        if before not in ENCODER_SETTINGS:
            return text
    elif one.name == "models":
        path, comma, after = text.partition(",")
        after = comma + after
    elif start := next((s for s in _FOLDER_OF if text.startswith(s)), ""):
        before, path = start, text.removeprefix(start)
    if not is_path and not _is_local(path, one, bool(before)):
        return text
    return f"{before}{os.path.abspath(os.path.expanduser(path))}{after}"


def _is_local(path: str, one: Declared, surely: bool) -> bool:
    """Return whether a text names a local file; UserError if it should exist but does not."""
    here = os.path.expanduser(path)
    if os.path.isabs(here) or os.path.lexists(here) or re.match(r"\.{1,2}(/|$)", here):
        return True
    if one.option.path == "input" or (surely and one.name != "set"):
        if one.name == "input" and glob.glob(here, recursive=True):
            return True
        if one.name in ("whiten", "rank", "flow") and path == "tasks":
            return False
        raise UserError(
            f"{one.name} {path!r} is not in this folder, and the job runs in another: give an "
            "absolute path that all nodes see, or an address such as s3://bucket/folder"
        )
    return False


def _path_in(text: str) -> str:
    """Return the path in a changed value, without the text around it."""
    for before in (*ENCODER_SETTINGS, *_FOLDER_OF):
        text = text.removeprefix(before)
    return text.partition(",")[0]
