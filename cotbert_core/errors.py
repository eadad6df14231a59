"""The one exception for mistakes a user can mend, and the sentences that report them."""

from __future__ import annotations

from collections.abc import Iterable

from cotbert_core.messages.redaction import redact


class UserError(ValueError):
    """A wrong command line, setting, path or input: told in one sentence, exit status 2.

    Its message holds no credentials of the addresses and errors that it repeats.
    """

    def __init__(self, message: object) -> None:
        super().__init__(redact(message))


def unknown(kind: str, value: object, known: Iterable[str]) -> UserError:
    """The error for a name that is not in the dictionary of its kind."""
    return UserError(f"unknown {kind} {value!r}: choose one of {', '.join(sorted(known))}")
