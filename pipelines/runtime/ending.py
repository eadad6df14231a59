"""The last lines that a job prints: its result, its output folder and the next commands."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from itertools import chain, count
from pathlib import Path

from cotbert_core.messages.redaction import without_credentials
from pipelines.runtime.progress import print_output

REPORT_FILE = "report.html"  # the page of a job that makes one


def print_ending(sentence: str, output: Path, *commands: Sequence[str | Path]) -> None:
    """Print a job's result in a sentence, its folder, its report and the next commands.

    commands: the arguments of each, without `cotbert`.
    """
    print_output(f"\n{sentence}")
    print_output(places(output, *commands))


def places(output: Path, *commands: Sequence[str | Path]) -> str:
    """Return lines with a job's folder, its report if it has one, and the next commands."""
    lines = [f"  folder  {shown_path(output)}"]
    if (output / REPORT_FILE).is_file():
        lines.append(f"  report  {shown_path(output / REPORT_FILE)}")
    return "\n".join([*lines, *(f"  next    {typed(words)}" for words in commands)])


def typed(words: Sequence[str | Path], program: str = "cotbert") -> str:
    """Return a command as it can be typed in the current folder.

    If the environment is not activated, the program gets the path of the interpreter's folder.
    """
    place = "" if shutil.which(program) else f"{shown_path(Path(sys.executable).parent)}/"
    shown = [
        str(shown_path(word)) if isinstance(word, Path) else without_credentials(word)
        for word in words
    ]
    return f"{place}{program} {shlex.join(shown)}"


def rows_again(inputs: Sequence[str], text_column: str) -> tuple[str, ...]:
    """Return the words after `--input` or `--text` by which a next command reads the same rows."""
    column = () if text_column == "text" else ("--text-column", text_column)
    return (*inputs, *column)


def reading_words(reading: Mapping[str, str | None]) -> tuple[str, ...]:
    """Return the options that make the next command read text as this one did.

    reading: the value of each option, such as encoding; None if it was not given.
    """
    given = ((f"--{name}", value) for name, value in reading.items() if value is not None)
    return tuple(chain.from_iterable(given))


def free_folder(name: str) -> str:
    """Return the name of a folder for a next command's output, with -2, -3, ... at its end if
    something of that name is there already, perhaps unfinished."""
    names = (name if number == 1 else f"{name}-{number}" for number in count(1))
    return next(n for n in names if not (Path(n).exists() or Path(f"{n}.partial").exists()))


def shown_path(path: Path) -> Path:
    """Return a path relative to the current folder, if it is inside."""
    path, here = Path(os.path.abspath(path)), Path.cwd()  # without `..`, links as they are
    return path.relative_to(here) if path.is_relative_to(here) else path
