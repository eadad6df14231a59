"""The exceptions for mistakes that a user can correct."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterable, Sequence
from importlib import util
from numbers import Integral

from cotbert_core.messages.redaction import redact


class UserError(ValueError):
    """A wrong command line, setting, path or input, reported in one sentence with exit status 2.

    Credentials in addresses and in quoted errors are removed from the message.
    """

    def __init__(self, message: object) -> None:
        super().__init__(redact(message))


class ReadError(UserError):
    """A file that was found cannot be read to its end, but the disk or the network may recover.

    So what the job has done is kept, and the same command continues it.
    """


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or the error's name if it has no message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, which is given in the singular: `1 row`, `2,000 rows`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def unknown(kind: str, value: object, known: Iterable[str]) -> UserError:
    """Return the error for a name that is not in the dictionary of its kind."""
    names = sorted(known)
    meant = did_you_mean(str(value), names)
    return UserError(f"unknown {kind} {value!r}: choose one of {', '.join(names)}{meant}")


def require_tokens(name: str, value: object) -> int:
    """Return a number of tokens, also numpy's, as an int; UserError unless it is a whole number
    above 0."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise UserError(f"{name} is {value!r}: give a whole number of tokens, at least 1")
    return int(value)


def require_packages(what: str, names: Iterable[str], extra: str) -> None:
    """Raise UserError if one of the modules that `what` needs is not installed."""
    if missing := [name for name in names if util.find_spec(name) is None]:
        raise missing_packages(what, missing, extra)


def missing_packages(what: str, names: Sequence[str], extra: str) -> UserError:
    """Return the error for modules that `what` needs and that are not installed.

    extra: the extra in pyproject.toml that lists their libraries, which the message names: no
    package index has this project.
    """
    from importlib import metadata  # a fifth of the time of `cotbert --help`

    try:
        requirements = metadata.requires("cotbert") or []
    except metadata.PackageNotFoundError:  # this code is used without being installed
        requirements = []
    marked = (one.partition(";") for one in requirements)
    libraries = [library.strip() for library, _, mark in marked if f'extra == "{extra}"' in mark]
    named = " and ".join(names)
    return UserError(
        f"{what} needs {named}: install with pip install {shlex.join(libraries or names)}"
    )


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """Return " (did you mean NAME?)" for the known name that is most like the one given, or ""."""
    likely = difflib.get_close_matches(given, list(known), n=1, cutoff=0.7)
    return f" (did you mean {likely[0]}?)" if likely else ""
