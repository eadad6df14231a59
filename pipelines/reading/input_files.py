"""Find the files of an input: a path, a folder, a glob or a URI."""

from __future__ import annotations

import glob
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from cotbert_core.errors import UserError
from pipelines.reading.data_folder import (
    DATA_FOLDER,
    FIRST_PART,
    REFUSED_FILE,
    SKIPPED_FILE,
    UNTRACKED_FILE,
)
from pipelines.reading.locations import OPTIONS, is_uri, opened, suffixes, unreachable
from pipelines.reading.manifests import HELD_OUT_FILE
from pipelines.reading.own_output import is_output, without_output
from pipelines.runtime.progress import say_once

_CONVERT = "docs/settings.md says how to convert others"
# Maximum number of endings that a message about unknown formats names.
_MOST_ENDINGS = 4
_BESIDE_PARTS = (HELD_OUT_FILE, SKIPPED_FILE, UNTRACKED_FILE, REFUSED_FILE)


def find(item: str, known: Callable[[str], bool], kinds: str) -> tuple[list[str], list[str]]:
    """Return the files of a path, folder, glob or URI: those of a `known` format, and the others.

    A single file must be known; a folder or glob must contain at least one known file. Hidden files
    are among the others. kinds: the known suffixes, for the message.
    """
    name, single, found = _list(item)
    if single:
        if not known(name):
            raise _unknown_format(item, kinds)
        # A link that the user gives as input is followed.
        return found, []
    folder = name if os.path.isdir(name) else _before_wildcard(name)
    found = _without_output(item, found, folder, is_walked=name == folder)
    hidden = is_hidden(name, folder)  # the glob names hidden files
    usable = [
        path
        for path in found
        if known(path)
        and (is_uri(path) or os.path.isfile(path))
        and not _is_beside_parts(path, found)
        and (hidden or not is_hidden(path, folder))
    ]
    usable = _without_links_out(item, name, usable)
    taken = set(usable)
    others = [path for path in found if path not in taken]
    unknown = [
        path
        for path in others
        if not (known(path) or is_hidden(path, folder) or os.path.isdir(path))
    ]
    if not usable:
        raise _nothing_usable(item, name, unknown, kinds)
    if unknown and not is_output(name, found):
        say_once(
            f"note: {len(unknown):,} of {len(unknown) + len(usable):,} files in {item!r} are of "
            f"kinds that are not read ({_endings(unknown)}): {_CONVERT}"
        )
    return usable, others


def _list(item: str) -> tuple[str, bool, list[str]]:
    """Return (absolute path or URI, whether it is a single file, all paths found)."""
    if not item:
        raise UserError("input is an empty text: give a path, such as '.' for the current folder")
    try:
        name, single, found = _find_uri(item) if is_uri(item) else _find_here(item)
        for path in found:
            path.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"input {error.object!r} has a name that is not UTF-8: rename it") from None
    return name, single, found


def _unknown_format(item: str, kinds: str) -> UserError:
    ending = "".join(suffixes(item))
    what = f"ends in {ending!r}" if ending else "has no ending"
    return UserError(
        f"input {item!r} {what}: give one of {kinds}; rename text to .txt and lines of JSON to "
        f".jsonl; {_CONVERT}"
    )


def _nothing_usable(item: str, name: str, unknown: Sequence[str], kinds: str) -> UserError:
    is_folder = not is_uri(item) and os.path.isdir(name)
    what = "holds no file" if is_folder else "does not exist or matches no file"
    kinds = f"{kinds}; those found are {_endings(unknown)}: {_CONVERT}" if unknown else kinds
    return UserError(f"input {item!r} {what} of a known kind: {kinds}")


def _without_output(item: str, found: list[str], folder: str, is_walked: bool) -> list[str]:
    """Return the paths that are not output of cotbert, with a note on the folders left out."""
    found, own = without_output(found, folder, is_walked)
    if own:
        say_once(
            f"note: folders in {item!r} that hold output of cotbert or a model are not read "
            f"({len(own):,}, the first {own[0]!r}): name them to read them"
        )
    return found


def _without_links_out(item: str, name: str, paths: list[str]) -> list[str]:
    """Return the paths that are no links to places outside, with a warning about the others."""
    outside = set(leading_out(name, paths))
    if outside:
        say_once(
            f"warning: {len(outside)} links in {item!r} lead outside it and were not followed, the "
            f"first {min(outside)!r}: give the files themselves to read them"
        )
    return [path for path in paths if path not in outside]


def _endings(paths: Sequence[str]) -> str:
    """Return the most frequent endings of files, each with its number."""
    endings = Counter("".join(suffixes(path)) or "without an ending" for path in paths)
    shown = [f"{number:,} {ending}" for ending, number in endings.most_common(_MOST_ENDINGS)]
    return ", ".join(shown) + (", ..." if len(endings) > _MOST_ENDINGS else "")


def _is_beside_parts(path: str, found: Sequence[str]) -> bool:
    """Return whether a file of a corpus or of embeddings is never read as input."""
    folder, _, name = path.rpartition("/")
    if name not in _BESIDE_PARTS:
        return False
    # The folders of earlier versions have no data/.
    parts = (f"{folder}/{DATA_FOLDER}/{FIRST_PART}", f"{folder}/{FIRST_PART}")
    return any(other.startswith(parts) for other in found)


def is_hidden(path: str, folder: str) -> bool:
    """Return whether a file, or a folder in which it lies below this one, begins with a dot: an
    editor's checkpoint, or what macOS keeps beside a file."""
    return "/." in path[len(folder) :]


def leading_out(item: str, paths: Sequence[str]) -> list[str]:
    """Return the paths in a folder or of a glob that are links to places outside it.

    Buckets have no links.
    """
    scheme = "file://" if item.startswith("file://") else ""
    if is_uri(item) and not scheme:
        return []
    folder = item.removeprefix(scheme)
    home = os.path.realpath(folder if os.path.isdir(folder) else _before_wildcard(folder) or "/")
    inside = home.rstrip("/") + "/"
    return [p for p in paths if not os.path.realpath(p.removeprefix(scheme)).startswith(inside)]


def _find_here(item: str) -> tuple[str, bool, list[str]]:
    """Return (absolute path, whether it is a single file, all paths found)."""
    given = Path(item).expanduser()
    path = given.absolute()
    if path.is_file():
        return str(path), True, [str(path)]
    if path.is_dir():
        return str(path), False, list(_walk(path))
    if path.exists():
        raise UserError(f"input {item!r} is a pipe or a device: give a file")
    if path.is_symlink():
        raise UserError(f"input {item!r} is a link to {os.readlink(path)!r}, which is not there")
    # Wildcard characters in the path of the current folder stand for themselves.
    pattern = os.path.join(glob.escape(os.getcwd()), given)
    return pattern, False, glob.glob(pattern, recursive=True)


def _walk(folder: Path) -> Iterator[str]:
    """Yield all paths below a folder except folders; links to folders are not followed."""

    def refuse(error: OSError) -> None:
        raise UserError(
            f"input {str(error.filename)!r} cannot be read ({error.strerror}): change its "
            "permissions or leave it out"
        )

    for home, folders, files in os.walk(folder, onerror=refuse):
        links = [name for name in folders if os.path.islink(os.path.join(home, name))]
        yield from (os.path.join(home, name) for name in (*files, *links))


def _find_uri(item: str) -> tuple[str, bool, list[str]]:
    system, path = opened(item)
    options = item[len(OPTIONS.split(item)[0]) :]
    scheme = item.partition("://")[0]
    try:
        info = system.get_file_info(path)
        if info.type == fs.FileType.File:
            return item, True, [item]
        base = path if info.type == fs.FileType.Directory else _before_wildcard(path)
        selector = fs.FileSelector(base, recursive=True, allow_not_found=True)
        infos = system.get_file_info(selector)
    except (pa.ArrowException, OSError) as error:
        raise unreachable(item, error) from None
    files = [i.path for i in infos if i.type == fs.FileType.File]
    found = [f for f in files if base == path or _matches(f.split("/"), path.split("/"))]
    return item, False, [f"{scheme}://{path}{options}" for path in found]


def _before_wildcard(path: str) -> str:
    """Return the folder before the first wildcard; a path without a wildcard is returned whole.

    A character that glob.escape has put into brackets stands for itself.
    """
    wildcard = re.search(r"(?<!\[)([*?]|\[(?![*?\[]\]))", path)
    folder = path[: wildcard.start()].rpartition("/")[0] if wildcard else path
    return re.sub(r"\[([*?\[])\]", r"\1", folder)


def _matches(path: list[str], pattern: list[str]) -> bool:
    """Return whether a path matches as in glob: `*` within a folder, `**` any number of folders."""
    if not pattern:
        return not path
    if pattern[0] == "**" and _matches(path, pattern[1:]):
        return True
    if not path:
        return False
    if pattern[0] == "**":
        return _matches(path[1:], pattern)
    return fnmatchcase(path[0], pattern[0]) and _matches(path[1:], pattern[1:])
