"""Who may read and change the files of a command, and where the token of its Ray is."""

from __future__ import annotations

import stat
from contextlib import suppress
from pathlib import Path


def note_modes(modes: dict[Path, int], path: Path, above: int = 0o777) -> None:
    """Add the modes of a folder and all that is in it: of files that change, the widest.

    above: how far the folders above let others come.
    """
    with suppress(OSError):  # removed meanwhile
        state = path.lstat()
        mode = stat.S_IMODE(state.st_mode) & above
        if not stat.S_ISLNK(state.st_mode):
            modes[path] = modes.get(path, 0) | mode
        if stat.S_ISDIR(state.st_mode):
            # Others may look for nothing in a folder that they cannot enter.
            reach = 0o700 | (0o070 if mode & 0o010 else 0) | (0o007 if mode & 0o001 else 0)
            for entry in path.iterdir():
                note_modes(modes, entry, above & reach)


def check_modes(modes: dict[Path, int], secret: Path) -> None:
    """One file alone holds the token, for its owner alone, and others can change nothing."""
    token = secret.read_bytes()
    assert {path for path in modes if path.is_file() and token in path.read_bytes()} == {secret}
    assert (modes[secret], modes[secret.parent]) == (0o600, 0o700)
    # Under the usual umask nothing that a command writes can be changed by others.
    assert {str(path): oct(mode) for path, mode in modes.items() if mode & 0o022} == {}
