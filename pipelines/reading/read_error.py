"""The error of a disk or a network that may pass."""

from __future__ import annotations

from cotbert_core.errors import UserError


class ReadError(UserError):
    """A file that was found cannot be read to its end, perhaps only for a moment.

    So what the job has done is kept, and the same command continues it.
    """
