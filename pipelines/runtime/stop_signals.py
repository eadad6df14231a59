"""Handle SIGTERM and SIGHUP like Ctrl-C: the command's processes end, with a message.

Ray installs its own handlers: when it starts, one for SIGTERM, and with each training one for
SIGINT that it does not remove afterwards.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

STOPPING = (signal.SIGTERM, signal.SIGHUP)
# Ending a Ray of this machine takes up to 5 s.
ENDING_SECONDS = 10.0


@dataclass
class Stop:
    """The signal that ended the command (None: no signal yet), and its time in seconds."""

    signal: signal.Signals | None = None
    time: float = float("-inf")

    def handle(self, number: int, frame: Any) -> None:
        """Interrupt the main thread, but only once: a closed terminal sends SIGHUP twice.

        The handler of SIGINT is not called: Ray Train's waits for starting workers, which can take
        minutes.
        """
        if time.monotonic() - self.time < ENDING_SECONDS:
            return
        self.signal, self.time = signal.Signals(number), time.monotonic()
        raise KeyboardInterrupt


@contextmanager
def stop_signals() -> Iterator[Stop]:
    """Let SIGTERM and SIGHUP interrupt the block, unless they are ignored, as under nohup."""
    stop = Stop()
    with restored_signal_handlers():
        for number in STOPPING if _in_main_thread() else ():
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, stop.handle)
        yield stop


@contextmanager
def restored_signal_handlers() -> Iterator[None]:
    """Restore the handlers of SIGINT, SIGTERM and SIGHUP after the block, which may replace them.

    While Ray starts, its own SIGTERM handler exits with the signal's number; then the previous
    handler is called. Raises KeyboardInterrupt if the block swallowed a signal's exception, as
    Ray's start does in places: otherwise the command would run to its end.
    """
    if not _in_main_thread():
        yield
        return
    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, *STOPPING)}
    try:
        yield
    except SystemExit as ended:
        handler = previous[signal.SIGTERM]
        if ended.code == signal.SIGTERM and callable(handler):
            handler(signal.SIGTERM, None)
        raise
    else:
        stop = getattr(previous[signal.SIGTERM], "__self__", None)
        if isinstance(stop, Stop) and stop.signal is not None:
            raise KeyboardInterrupt
    finally:
        for number, handler in previous.items():
            if handler is not None:  # None: set by a library in C
                signal.signal(number, handler)


def _in_main_thread() -> bool:
    """Return whether this thread may set handlers."""
    return threading.current_thread() is threading.main_thread()
