"""The exception for mistakes that a user can correct."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from importlib import util

from cotbert_core.messages.redaction import redact


class UserError(ValueError):
    """A wrong command line, setting, path or input, reported in one sentence with exit status 2.

    Credentials in addresses and in quoted errors are removed from the message.
    """

    def __init__(self, message: object) -> None:
        super().__init__(redact(message))


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or the error's name if it has no message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def unknown(kind: str, value: object, known: Iterable[str]) -> UserError:
    """Return the error for a name that is not in the dictionary of its kind."""
    names = sorted(known)
    meant = did_you_mean(str(value), names)
    return UserError(f"unknown {kind} {value!r}: choose one of {', '.join(names)}{meant}")


def require_packages(what: str, names: Iterable[str], extra: str) -> None:
    """Raise UserError if one of the packages that `what` needs is not installed."""
    if missing := [name for name in names if util.find_spec(name) is None]:
        raise UserError(
            f"{what} needs the packages {' and '.join(missing)}: install them with "
            f"pip install 'cotbert[{extra}]'"
        )


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """Return " (did you mean NAME?)" for the known name that is most like the one given, or ""."""
    likely = difflib.get_close_matches(given, list(known), n=1, cutoff=0.7)
    return f" (did you mean {likely[0]}?)" if likely else ""
