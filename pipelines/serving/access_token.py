"""The token that clients of `cotbert serve` must send, unless it only listens on loopback."""

from __future__ import annotations

import hmac
import os
import stat
from pathlib import Path

from cotbert_core.errors import UserError
from pipelines.runtime.progress import say
from pipelines.serving.options import TOKEN_VARIABLE, ServeOptions, is_loopback

# Allowed lengths of a token; 16 random base64 characters are 96 bits.
SHORTEST, LONGEST = 16, 4096


class AccessToken:
    """A token, compared in constant time and never shown."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    def admits(self, authorization: str | None) -> bool:
        """Return whether this Authorization header has the token, after Bearer in any case."""
        scheme, _, token = (authorization or "").partition(" ")
        same = hmac.compare_digest(token.strip().encode(), self._token)
        return same and scheme.lower() == "bearer"


def find_access_token(options: ServeOptions) -> AccessToken | None:
    """Return the token of the file or the environment, or None for a service on loopback.

    Raises UserError for a token that is unreadable or too short, and for a host other than loopback
    without a token.
    """
    if options.token_file is not None:
        source, token = f"the token file {str(options.token_file)!r}", _read(options.token_file)
    else:
        source, token = TOKEN_VARIABLE, os.environ.get(TOKEN_VARIABLE, "").strip()
        if not token and is_loopback(options.host):
            return None
        if not token:
            raise UserError(
                f"host is {options.host!r}, which others can reach, and there is no token: give "
                f"--token-file, set {TOKEN_VARIABLE}, or listen at 127.0.0.1"
            )
    if not (SHORTEST <= len(token) <= LONGEST and token.isascii() and token.isprintable()):
        raise UserError(
            f"the token in {source} has {len(token)} characters or some that are not printable "
            f"ASCII: give {SHORTEST} to {LONGEST:,}, e.g. by `openssl rand -hex 32`"
        )
    return AccessToken(token)


def _read(path: Path) -> str:
    """Return the stripped text of a token file, with a warning if others can read the file."""
    try:
        with path.open("rb") as file:
            mode, content = os.fstat(file.fileno()).st_mode, file.read(2 * LONGEST)
            token = content.decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"the token file {str(path)!r} cannot be read ({error}): give a file with one token"
        ) from None
    if mode & (stat.S_IRGRP | stat.S_IROTH):
        say(f"warning: others can read the token file {path}: make it private with `chmod 600`")
    return token
