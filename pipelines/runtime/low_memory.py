"""Recognise that a GPU, or a machine on which Ray then ended a process, ran out of memory.

Ray's message has ten lines, whose last ones name environment variables of Ray, and torch's ends
with some of torch.
"""

from __future__ import annotations

import re

# What Ray's memory monitor says, its error's class, and its last line, with which some errors come.
_WORDS = re.compile(r"running low on memory|OutOfMemoryError|out of memory issue")
# The message of torch for a GPU, whose class is an OutOfMemoryError too.
_GPU_WORDS = re.compile(
    r"(?:CUDA|HIP)(?: error:)? out of memory(?:\. Tried to allocate ([\d.]+ \w+))?"
)
_USAGE = re.compile(r"[\d.]+ ?GB used / [\d.]+ ?GB limit")


def out_of_memory(error: object) -> str | None:
    """Return a sentence that says so and what to do, None for any other error."""
    text = f"{type(error).__name__}: {error}"
    if found := _GPU_WORDS.search(text):
        usage = f" (it needed {found[1]} more)" if found[1] else ""
        return (
            f"a GPU ran out of memory{usage}: end other processes on it, give a smaller batch size "
            "or, to train, --set mini_batch_size=64, or use a GPU with more memory"
        )
    if _WORDS.search(text) is None:
        return None
    found = _USAGE.search(text)
    usage = f" ({found[0]})" if found else ""
    return (
        f"Ray ended a process because the machine ran out of memory{usage}: give fewer workers or "
        "a smaller batch size, or use a machine with more memory"
    )
