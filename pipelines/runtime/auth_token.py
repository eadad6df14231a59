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
from pathlib import Path

from cotbert_core.errors import UserError
from pipelines.runtime.progress import say

TOKEN, TOKEN_PATH, MODE = "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE"
FILE_MODE, FOLDER_MODE = 0o600, 0o700
OTHERS_READ_OR_WRITE = stat.S_IRWXG | stat.S_IRWXO
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def default_path() -> Path:
    """Return the file that Ray reads when no variable names a token."""
    return Path.home() / ".ray" / "auth_token"


def find_token() -> str | None:
    """Return the token, or None if there is none yet.

    A file that others may read is made private, with a warning. Raises UserError for a file that
    cannot be read or made private, belongs to another user, or is a link out of the home folder.
    """
    if token := os.environ.get(TOKEN, "").strip():
        return token
    named = os.environ.get(TOKEN_PATH)
    path = Path(named).expanduser() if named else default_path()
    try:
        text = _read_private(path, named is not None)
    except (OSError, ValueError) as error:
        raise UserError(_unreadable(path, str(error))) from None
    if named and not text:
        raise UserError(_unreadable(path, "it does not exist" if text is None else "it is empty"))
    return text or None


def ensure_token() -> Path | None:
    """Create a token if there is none and return its file, which only its owner can read.

    The file is created atomically: another process sees the whole token or no file. Raises
    UserError as find_token does, and if the file cannot be written.
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


def check_mode() -> None:
    """Show a warning if RAY_AUTH_MODE turns the token off."""
    mode = os.environ.get(MODE, "token")
    if mode.lower() != "token":
        say(
            f"warning: {MODE} is {mode!r}: whoever can connect to this Ray can run code in it; "
            "unset it to require a token"
        )


def _read_private(path: Path, named: bool) -> str | None:
    """Return the stripped text of a file that only its owner can read; None if it does not exist.

    named: whether RAY_AUTH_TOKEN_PATH names the file, which may then be a link and belong to root,
    as the secrets that Kubernetes mounts do.
    """
    if not named:
        _check_folder(path.parent)
        _check_link(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    with open(descriptor, encoding="utf-8") as file:
        _make_private(path, descriptor, {os.geteuid(), 0} if named else {os.geteuid()})
        return file.read().strip()


def _check_link(path: Path) -> None:
    if not path.is_symlink():
        return
    target = path.resolve()
    if not (target.is_relative_to(Path.home().resolve()) and target.is_file()):
        raise UserError(
            f"the token file {str(path)!r} is a link to {str(target)!r}: a link must lead to a "
            f"file in the home folder; remove it, or name the file by {TOKEN_PATH}"
        )


def _check_folder(folder: Path) -> None:
    """Remove other users' write access to the folder, with which they could replace the file."""
    try:
        state = folder.stat()
    except FileNotFoundError:
        return
    _check_owner(folder, state.st_uid, {os.geteuid()})
    if state.st_mode & OTHERS_WRITE:
        os.chmod(folder, stat.S_IMODE(state.st_mode) & ~OTHERS_WRITE)
        say(f"warning: others could write to {folder}, which holds Ray's token; now they cannot")


def _make_private(path: Path, descriptor: int, owners: set[int]) -> None:
    """Set mode 0600 if others have any access; UserError if that has no effect."""
    state = os.fstat(descriptor)
    if not stat.S_ISREG(state.st_mode):
        raise UserError(_unreadable(path, "it is not a regular file"))
    _check_owner(path, state.st_uid, owners)
    wide = stat.S_IMODE(state.st_mode)
    if not wide & OTHERS_READ_OR_WRITE:
        return
    if state.st_uid != os.geteuid():  # root's, named by the user
        say(f"warning: the token file {path} of another user has mode {wide:04o}: others read it")
        return
    os.fchmod(descriptor, FILE_MODE)
    if os.fstat(descriptor).st_mode & OTHERS_READ_OR_WRITE:
        raise UserError(
            f"the token file {str(path)!r} has mode {wide:04o} and its file system ignores chmod: "
            f"put the token into {TOKEN}"
        )
    say(
        f"warning: the token file {path} had mode {wide:04o} and now has {FILE_MODE:04o}: if "
        "others use this machine, remove it while no Ray runs; the next command makes a new one"
    )


def _check_owner(path: Path, owner: int, owners: set[int]) -> None:
    if owner not in owners:
        raise UserError(
            f"{str(path)!r} belongs to user {owner} and this process runs as {os.geteuid()}: Ray's "
            f"token must be your own; remove it, or put a token into {TOKEN}"
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
