"""Open files on this machine, or in a bucket named by a URI (s3://, gs://, file://).

A file is identified by its absolute path or its URI. Compressed files (.gz, .zst) are decompressed
on the fly. Buckets are accessed through pyarrow's file systems, which find the credentials.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from cotbert_core.errors import UserError, first_line

COMPRESSED = {".gz": "gzip", ".zst": "zstd"}
_URI = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")
# A question mark before `name=` begins the file system's options and is not a wildcard.
OPTIONS = re.compile(r"\?(?=\w+=)")


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
    path = Path(OPTIONS.split(name)[0] if is_uri(name) else name)
    compression = path.suffix.lower()
    if compression not in COMPRESSED:
        return compression, ""
    return path.with_suffix("").suffix.lower(), compression


@lru_cache
def _filesystem(root: str) -> Any:
    return fs.FileSystem.from_uri(root)[0]


def opened(uri: str) -> tuple[Any, str]:
    """Return the file system of a URI and the path in it."""
    place, *options = OPTIONS.split(uri, maxsplit=1)
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


def open_file(name: str) -> Any:
    """Open a file for random access by pyarrow; compressed files are not decompressed."""
    if not is_uri(name):
        with open(name, "rb"):  # raises a clearer error than pyarrow
            return pa.OSFile(name)
    system, path = opened(name)
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
    system, path = opened(name) if is_uri(name) else (fs.LocalFileSystem(), name)
    info = system.get_file_info(path)
    return info.size or 0, info.mtime_ns or 0
