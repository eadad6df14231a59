"""Find and open files on this machine, or in a bucket named by a URI (s3://, gs://, file://).

A file is identified by its absolute path or its URI. Compressed files (.gz, .zst) are decompressed
on the fly. Buckets are accessed through pyarrow's file systems, which find the credentials.
"""

from __future__ import annotations

import glob
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from cotbert_core.errors import UserError, first_line
from pipelines.reading.data_folder import (
    DATA_FOLDER,
    FIRST_PART,
    REFUSED_FILE,
    SKIPPED_FILE,
    UNTRACKED_FILE,
)
from pipelines.reading.manifests import HELD_OUT_FILE
from pipelines.reading.own_output import is_output, without_output
from pipelines.runtime.progress import say_once

COMPRESSED = {".gz": "gzip", ".zst": "zstd"}
_URI = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")
# A question mark before `name=` begins the file system's options and is not a wildcard.
_OPTIONS = re.compile(r"\?(?=\w+=)")
_CONVERT = "docs/settings.md says how to convert others"
# Maximum number of endings that a message about unknown formats names.
_MOST_ENDINGS = 4
_BESIDE_PARTS = (HELD_OUT_FILE, SKIPPED_FILE, UNTRACKED_FILE, REFUSED_FILE)


def is_uri(name: str) -> bool:
    return _URI.match(name) is not None


def real_path(name: str) -> str:
    """Return the path of a local file without `..` and links to folders; other names unchanged."""
    path = name.removeprefix("file://")
    folder, file = os.path.split(path)
    return path if is_uri(path) else os.path.join(os.path.realpath(folder), file)


def suffixes(name: str) -> tuple[str, str]:
    """Return the suffixes of the format and of the compression, in lower case with the dot.

    `a.jsonl.gz` gives (".jsonl", ".gz"), `a.txt` gives (".txt", "").
    """
    path = Path(_OPTIONS.split(name)[0] if is_uri(name) else name)
    compression = path.suffix.lower()
    if compression not in COMPRESSED:
        return compression, ""
    return path.with_suffix("").suffix.lower(), compression


def find(item: str, known: Callable[[str], bool], kinds: str) -> tuple[list[str], list[str]]:
    """Return the files of a path, folder, glob or URI: those of a `known` format, and the others.

    A single file must be known; a folder or glob must contain at least one known file. Hidden files
    are among the others. kinds: the known suffixes, for the message.
    """
    if not item:
        raise UserError("input is an empty text: give a path, such as '.' for the current folder")
    try:
        name, single, found = _find_uri(item) if is_uri(item) else _find_here(item)
        for path in found:
            path.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"input {error.object!r} has a name that is not UTF-8: rename it") from None
    if single and not known(name):
        ending = "".join(suffixes(name))
        what = f"ends in {ending!r}" if ending else "has no ending"
        raise UserError(
            f"input {item!r} {what}: give one of {kinds}; rename text to .txt and lines of JSON to "
            f".jsonl; {_CONVERT}"
        )
    folder = name if single or os.path.isdir(name) else _before_wildcard(name)
    found, own = without_output(found, folder, is_walked=name == folder and not single)
    if own:
        say_once(
            f"note: folders in {item!r} that hold output of cotbert are not read ({len(own):,}, "
            f"the first {own[0]!r}): name them to read them"
        )
    usable = [path for path in found if known(path) and (is_uri(path) or os.path.isfile(path))]
    if not single:
        hidden = is_hidden(name, folder)  # the glob names hidden files
        usable = [path for path in usable if not _is_beside_parts(path, found)]
        usable = [path for path in usable if hidden or not is_hidden(path, folder)]
    # A link that the user gives as input is followed.
    outside = set() if single else set(leading_out(name, usable))
    usable = [path for path in usable if path not in outside]
    if outside:
        say_once(
            f"warning: {len(outside)} links in {item!r} lead outside it and were not followed, the "
            f"first {min(outside)!r}: give the files themselves to read them"
        )
    taken = set(usable)
    others = [path for path in found if path not in taken]
    unknown = [
        path
        for path in others
        if not (known(path) or is_hidden(path, folder) or os.path.isdir(path))
    ]
    if not usable:
        is_folder = not is_uri(item) and os.path.isdir(name)
        what = "holds no file" if is_folder else "does not exist or matches no file"
        kinds = f"{kinds}; those found are {_endings(unknown)}: {_CONVERT}" if unknown else kinds
        raise UserError(f"input {item!r} {what} of a known kind: {kinds}")
    if unknown and not is_output(name, found):
        say_once(
            f"note: {len(unknown):,} of {len(unknown) + len(usable):,} files in {item!r} are of "
            f"kinds that are not read ({_endings(unknown)}): {_CONVERT}"
        )
    return usable, others


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


@lru_cache
def _filesystem(root: str) -> Any:
    return fs.FileSystem.from_uri(root)[0]


def _opened(uri: str) -> tuple[Any, str]:
    """Return the file system of a URI and the path in it."""
    place, *options = _OPTIONS.split(uri, maxsplit=1)
    scheme, _, path = place.partition("://")
    bucket = path.split("/", 1)[0]
    root = f"{scheme}://{bucket}" + ("" if bucket else "/")
    try:
        return _filesystem("?".join([root, *options])), path
    except (pa.ArrowException, OSError, ValueError) as error:
        raise unreachable(uri, error) from None


def unreachable(name: str, error: Exception) -> UserError:
    """Return the UserError for a location that cannot be read."""
    return UserError(
        f"input {name!r} cannot be reached ({first_line(error)[:200]}): check the address and the "
        "credentials"
    )


def _find_uri(item: str) -> tuple[str, bool, list[str]]:
    system, path = _opened(item)
    options = item[len(_OPTIONS.split(item)[0]) :]
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


def open_file(name: str) -> Any:
    """Open a file for random access by pyarrow; compressed files are not decompressed."""
    if not is_uri(name):
        with open(name, "rb"):  # raises a clearer error than pyarrow
            return pa.OSFile(name)
    system, path = _opened(name)
    return system.open_input_file(path)


@contextmanager
def open_stream(name: str) -> Iterator[Any]:
    """Open a file as a stream from its beginning, decompressed."""
    compression = suffixes(name)[1]
    with open_file(name) as raw:
        if not compression:
            yield raw
            return
        with pa.CompressedInputStream(raw, COMPRESSED[compression]) as stream:
            yield stream


def stamp(name: str) -> tuple[int, int]:
    """Return the size in bytes and the modification time in ns; zeros if there is no such file."""
    system, path = _opened(name) if is_uri(name) else (fs.LocalFileSystem(), name)
    info = system.get_file_info(path)
    return info.size or 0, info.mtime_ns or 0
