"""The words of a submitted command: checked on this machine, their paths made absolute.

A job runs in a folder of the cluster's, so a relative path would name something else there. It
means the caller's folder, as in every command; whether the nodes see that folder is theirs to say.
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

if TYPE_CHECKING:
    from cotbert_core.settings import TrainSettings

# They stay on this machine.
LOCAL = ("cluster", "submit")
# Options and arguments whose text may be a path: of something that must be there ...
INPUTS = ("corpus", "embeddings", "exclude", "folder", "input", "text", "whiten")
# ... or a path, or a name of something else.
NAMES = ("backward", "encoder", "forward", "model", "models", "name", "set", "space")
_URI = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:/|(docstrings|hf|models|runs):")
_FOLDER_OF = ("sick:",)


@dataclass(frozen=True)
class CommandLine:
    """The command line by which submitted words are checked.

    It is handed in, since it knows `cotbert submit`. parse: read words as `cotbert` does.
    add_options: for each command, add its options to a parser. trainings: the settings of the
    trainings that a command starts.
    """

    parse: Callable[[Sequence[str]], argparse.Namespace]
    add_options: Mapping[str, Callable[[argparse.ArgumentParser], None]]
    trainings: Callable[[str, argparse.Namespace], Sequence[TrainSettings]]


class _Word(str):
    """A word of the command line that remembers where it stood."""

    place: int


def parse(words: Sequence[str], line: CommandLine) -> argparse.Namespace:
    """Return the command as it will be parsed there. A mistake ends as `cotbert` itself would."""
    if not words:
        raise UserError("no command is given: write it after `--`, as in `-- train RECIPE ...`")
    if words[0] == "cotbert":
        raise UserError("the command begins with 'cotbert': leave that word out")
    if words[0] in LOCAL:
        raise UserError(f"{words[0]!r} runs on this machine: submit another command")
    arguments = line.parse(list(words))
    if words[0] == "quickstart" and arguments.output is None:
        raise UserError("quickstart has no --output: name a folder that outlives the job")
    return arguments


def absolute(words: Sequence[str], line: CommandLine) -> tuple[list[str], list[str]]:
    """Return the command with absolute paths, and those of its paths that lie in file systems.

    UserError for a relative input that is not there.
    """
    split = [part for word in words for part in _parts(word)]
    marked = []
    for place, text in enumerate(split):
        word = _Word(text)
        word.place = place
        marked.append(word)
    noted: dict[int, tuple[str, bool]] = {}
    parser = argparse.ArgumentParser(add_help=False)
    line.add_options[words[0]](parser)
    for action in parser._actions:
        if _may_be_path(action):
            action.type = _noting(action, noted)
    parser.parse_args(marked[1:])
    new = list(split)
    for place, (dest, is_path) in sorted(noted.items()):
        new[place] = _absolute(split[place], dest, is_path)
    paths = (_path_in(new[place]) for place in sorted(noted))
    return new, [path for path in dict.fromkeys(paths) if os.path.isabs(path)]


def _parts(word: str) -> tuple[str, ...]:
    """`--option=value` as two words, where argparse reads it so."""
    option, sign, value = word.partition("=")
    if word.startswith("--") and sign and not value.startswith("-"):
        return option, value
    return (word,)


def _may_be_path(action: argparse.Action) -> bool:
    return action.type is Path or (action.type is None and action.dest in (*INPUTS, *NAMES))


def _noting(action: argparse.Action, noted: dict[int, tuple[str, bool]]) -> Any:
    """What argparse calls with each value of an option: it notes whose value stands where."""
    use = action.dest, action.type is Path

    def note(word: str) -> str:
        if isinstance(word, _Word):
            noted[word.place] = use
        return word

    return note


def _absolute(text: str, dest: str, is_path: bool) -> str:
    """A value with its path made absolute, whatever stands around that."""
    if _URI.match(text) and not is_path:
        return text
    before, path, after = "", text, ""
    if dest == "set":
        before, sign, path = text.partition("=")
        before += sign
        if before != "encoder=":
            return text
    elif dest == "models":
        path, comma, after = text.partition(",")
        after = comma + after
    elif start := next((s for s in _FOLDER_OF if text.startswith(s)), ""):
        before, path = start, text.removeprefix(start)
    if not is_path and not _is_local(path, dest, bool(before)):
        return text
    return f"{before}{os.path.abspath(os.path.expanduser(path))}{after}"


def _is_local(path: str, dest: str, surely: bool) -> bool:
    """Whether a text names something on this machine; UserError where it should and does not."""
    here = os.path.expanduser(path)
    if os.path.isabs(here) or os.path.lexists(here) or re.match(r"\.{1,2}(/|$)", here):
        return True
    if dest in INPUTS or (surely and dest != "set"):
        if dest == "input" and glob.glob(here, recursive=True):
            return True
        if dest == "whiten" and path == "tasks":
            return False
        raise UserError(
            f"{dest} {path!r} is not in this folder, and the job runs in another: give an "
            "absolute path that all nodes see, or an address such as s3://bucket/folder"
        )
    return False


def _path_in(text: str) -> str:
    """The path of a changed value, without what stands around it."""
    for before in ("encoder=", *_FOLDER_OF):
        text = text.removeprefix(before)
    return text.partition(",")[0]
