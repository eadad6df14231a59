"""The token that a Ray cluster requires from every process that connects to it.

Ray looks for it in RAY_AUTH_TOKEN, then in the file of RAY_AUTH_TOKEN_PATH, then in
~/.ray/auth_token. This module does the same, so `ray` and `cotbert` use the same token. Ray would
create a missing file readable by everybody on the machine (0644 under the usual umask), and whoever
reads it can run code as its owner, so this module creates and checks the file before Ray starts.
"""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from cotbert_core.errors import UserError
from cotbert_core.files import home_folder
from pipelines.runtime.progress import say

TOKEN, TOKEN_PATH, MODE = "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE"
FILE_MODE, FOLDER_MODE = 0o600, 0o700
OTHERS = stat.S_IRWXG | stat.S_IRWXO


def default_path() -> Path:
    """Return the file that Ray reads when no variable names a token."""
    return home_folder() / ".ray" / "auth_token"


def find_token() -> str | None:
    """Return the token, or None if there is none yet.

    A file that others may read is made private, with a warning. Raises UserError for a file that
    cannot be read or made private.
    """
    if token := os.environ.get(TOKEN, "").strip():
        return token
    named = os.environ.get(TOKEN_PATH)
    path = Path(named).expanduser() if named else default_path()
    try:
        text = path.read_text(encoding="utf-8").strip() if named or path.exists() else ""
    except (OSError, ValueError) as error:
        raise UserError(_unreadable(path, str(error))) from None
    if named and not text:
        raise UserError(_unreadable(path, "it is empty"))
    if text:
        _make_private(path)
    return text or None


def ensure_token() -> Path | None:
    """Create a token if there is none and return its file, which only its owner can read.

    Raises UserError as find_token does, and if the file cannot be written.
    """
    if find_token() is not None:
        return None
    path = default_path()
    try:
        path.parent.parent.mkdir(parents=True, exist_ok=True)
        path.parent.mkdir(mode=FOLDER_MODE, exist_ok=True)
        _write_private(path, secrets.token_hex(32))
    except OSError as error:
        raise UserError(
            f"the token file {str(path)!r} cannot be written ({error}): make its folder writable, "
            f"or put a token into {TOKEN}"
        ) from None
    return path if find_token() else None


def ensure_own_token() -> None:
    """Have a token for a Ray that only this process uses.

    If no file can be made for it, as in a container whose user has no home folder, it is in the
    environment. Raises UserError for a file that is there, or named, and unusable.
    """
    try:
        ensure_token()
    except UserError:
        if os.environ.get(TOKEN_PATH) or os.access(default_path(), os.F_OK):
            raise
        os.environ[TOKEN] = secrets.token_hex(32)


def check_mode() -> None:
    """Show a warning if RAY_AUTH_MODE turns the token off."""
    mode = os.environ.get(MODE, "token")
    if mode.lower() != "token":
        say(
            f"warning: {MODE} is {mode!r}: whoever can connect to this Ray can run code in it; "
            "unset it to require a token"
        )


def _make_private(path: Path) -> None:
    """Set mode 0600 if others have any access, with a warning; UserError if that has no effect."""
    wide = stat.S_IMODE(path.stat().st_mode)
    if not wide & OTHERS:
        return
    with suppress(OSError):  # looked at below
        path.chmod(FILE_MODE)
    state = path.stat()
    if not state.st_mode & OTHERS:
        say(
            f"warning: the token file {path} had mode {wide:04o} and now has {FILE_MODE:04o}: if "
            "others use this machine, remove it while no Ray runs; the next command makes a new one"
        )
    elif path != default_path() and state.st_uid == 0:  # a secret that Kubernetes has mounted
        say(f"warning: the token file {path} of root has mode {wide:04o}: others can read it")
    else:
        raise UserError(
            f"the token file {str(path)!r} has mode {wide:04o}, with which others can read it, and "
            f"that cannot be changed: put the token into {TOKEN}"
        )


def _write_private(path: Path, text: str) -> None:
    """Write a file that no other user can read at any moment; an existing file is not replaced."""
    if path.exists() and not path.read_text(encoding="utf-8").strip():
        path.unlink()
    partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE), "w") as file:
        file.write(text)
    try:
        os.link(partial, path)
    except FileExistsError:  # another process was first: its token is used
        pass
    finally:
        partial.unlink()


def _unreadable(path: Path, reason: str) -> str:
    return (
        f"the token file {str(path)!r} cannot be read ({reason}): correct or remove it, "
        f"correct {TOKEN_PATH}, or put a token into {TOKEN}"
    )
