"""Report a job whose process ends without a word, as Ray's C++ code ends it when Ray has died."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

ENDED = (
    "cotbert: the job failed: its process was killed, or ended by its Ray, which had died: give "
    "the same command again; it continues what is unfinished"
)
# A line says that all is well. The progress line may be open.
_SCRIPT = r"""read -r _ || printf '\n%s\n' "$0" >&2"""


@contextmanager
def sudden_end_reported() -> Iterator[None]:
    """Let another process print ENDED to standard error if this one ends during the block.

    Up to 60 s after the end of its raylet or GCS, Ray's C++ code calls _exit(1) in the driver,
    which skips all code of this process that could say so. With a shorter time (10 s were tried)
    it would also do so in a job whose terminal was closed, before the job has heard the SIGHUP.
    """
    words = ["sh", "-c", _SCRIPT, ENDED]
    # In a session of its own: Ctrl-C and a closed terminal do not end it.
    with subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True) as reporter:
        try:
            yield
        finally:
            reporter.communicate(b"\n")
