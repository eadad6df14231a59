"""Recognise that Ray ended a process because its machine ran out of memory.

Ray's message has ten lines, whose last ones name environment variables of Ray.
"""

from __future__ import annotations

import re

# What Ray's memory monitor says, its error's class, and its last line, with which some errors come.
_WORDS = re.compile(r"running low on memory|OutOfMemoryError|out of memory issue")
_USAGE = re.compile(r"[\d.]+ ?GB used / [\d.]+ ?GB limit")


def out_of_memory(error: object) -> str | None:
    """Return a sentence that says so and what to do, None for any other error."""
    text = f"{type(error).__name__}: {error}"
    if _WORDS.search(text) is None:
        return None
    found = _USAGE.search(text)
    usage = f" ({found[0]})" if found else ""
    return (
        f"Ray ended a process because the machine ran out of memory{usage}: give fewer workers or "
        "a smaller batch size, or use a machine with more memory"
    )
