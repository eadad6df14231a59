"""Waiting for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

Found = TypeVar("Found")


def until(there: Callable[[], Found], seconds: float = 300.0, process: Any = None) -> Found:
    """Call a function until it returns something true, and return that.

    Fail when the time is over, or when the process that is waited for has ended.
    """
    limit = time.monotonic() + seconds
    while not (found := there()):
        if process is not None and process.poll() is not None:
            written = process.stderr.read() if process.stderr else ""
            pytest.fail(f"the process ended with {process.returncode}: {written}")
        assert time.monotonic() < limit, f"it did not happen within {seconds:.0f} s: {found}"
        time.sleep(0.02)
    return found
