"""The token that a Ray cluster asks of whoever speaks to it.

Ray looks for it in RAY_AUTH_TOKEN, then in the file of RAY_AUTH_TOKEN_PATH, then in
~/.ray/auth_token; so does this module, so that `ray` and `cotbert` use the same one.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from cotbert_core.errors import UserError

TOKEN, TOKEN_PATH, MODE = "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE"


def default_path() -> Path:
    return Path.home() / ".ray" / "auth_token"


def find_token() -> str | None:
    """The token at hand; UserError where RAY_AUTH_TOKEN_PATH names a file that cannot be read."""
    if token := os.environ.get(TOKEN, "").strip():
        return token
    named = os.environ.get(TOKEN_PATH)
    path = Path(named).expanduser() if named else default_path()
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except FileNotFoundError:
        if not named:
            return None
        reason = "it does not exist"
    except (OSError, ValueError) as error:
        reason = str(error)
    raise UserError(
        f"the token file {str(path)!r} cannot be read ({reason}): mend {TOKEN_PATH} or unset it"
    )


def ensure_token() -> Path | None:
    """Make a token where there is none; the file it went to, which its owner alone can read."""
    if find_token() is not None:
        return None
    path = default_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # empty, else it had been found
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secrets.token_hex(32))
    return path
