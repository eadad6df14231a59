"""Whether an error means that a disk is full, under the many names that libraries give to it."""

from __future__ import annotations

import errno
import re

FULL = (errno.ENOSPC, errno.EDQUOT)
# The system's words, Rust's number, SQLite's and Ray's words, and what torch says when its archive
# is shorter than what it wrote.
_WORDS = re.compile(
    r"no space left on device|disk quota exceeded|os error 28\b|database or disk is full"
    r"|local disk is full|unexpected pos \d+ vs|PytorchStreamWriter failed writing",
    re.IGNORECASE,
)


def means_full_disk(error: BaseException) -> bool:
    """Return whether this error says so itself; those that it came from are not looked at."""
    if isinstance(error, OSError) and error.errno in FULL:
        return True
    return _WORDS.search(str(error)) is not None
