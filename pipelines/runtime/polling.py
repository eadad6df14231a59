"""Call a function repeatedly in a thread while a job runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

POLL_SECONDS = 0.5


@contextmanager
def polled(poll: Callable[[], None]) -> Iterator[None]:
    """Call `poll` every POLL_SECONDS in a thread during the block, and once after it.

    An error in `poll` stops the calls and is raised after the block, unless the block raises.
    """
    stop, errors = threading.Event(), list[BaseException]()

    def attempt() -> None:
        try:
            poll()
        except BaseException as error:
            errors.append(error)

    def repeat() -> None:
        while not errors and not stop.wait(POLL_SECONDS):
            attempt()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        if not errors:
            attempt()
    if errors:
        raise errors[0]
