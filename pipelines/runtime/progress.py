"""Write progress, messages (to standard error) and results to the terminal.

Progress is one redrawn line in a terminal, and separate lines in a log file. Control and direction
characters in user text are escaped, and credentials are removed from messages.
"""

from __future__ import annotations

import codecs
import json
import os
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from itertools import compress
from typing import TextIO

from cotbert_core.messages.printable import printable
from cotbert_core.messages.redaction import redact

# Least time between two lines in a log file, and between two redraws in a terminal.
LOG_SECONDS = 10.0
TERMINAL_SECONDS = 0.2
# The width of a terminal that does not say it.
UNKNOWN_COLUMNS = 1000
# Prefixes of the messages that --quiet still shows: warnings, and errors that end the job.
IMPORTANT = ("warning: ", "cotbert: ")


@dataclass
class _State:
    """open_line: the terminal whose last line is a progress line that is still redrawn."""

    quiet: bool = False
    verbose: bool = False
    open_line: TextIO | None = None


_state = _State()


def set_output(*, quiet: bool = False, verbose: bool = False) -> None:
    """Set what this process shows: only warnings, errors and results, or Ray's output too."""
    _state.quiet, _state.verbose = quiet and not verbose, verbose


def is_verbose() -> bool:
    """Return whether this process shows Ray's output and the tracebacks of errors."""
    return _state.verbose


class Progress:
    """Shows the progress of a stage: done of total, current values, rate and time left."""

    def __init__(
        self, stage: str, total: int | None, unit: str, stream: TextIO | None = None
    ) -> None:
        """total: amount of work in units; None if unknown, and no time left is shown then."""
        self.stage, self.total, self.unit = stage, total, unit
        self.stream = stream or sys.stderr
        self.started = time.monotonic()
        self._done_before = 0
        self._last = float("-inf")
        self._width = 0
        self._line = ""
        self._terminal = self.stream.isatty()

    def start_at(self, done: int) -> None:
        """Exclude the work of an earlier run from the rate and the time left."""
        self._done_before = done
        self.started = time.monotonic()

    def show(self, done: int, fields: str = "", *, always: bool = False) -> None:
        """Show that `done` of `total` are done. always: even if a line was shown just before."""
        if _state.quiet:
            return
        now = time.monotonic()
        pause = TERMINAL_SECONDS if self._terminal else LOG_SECONDS
        ended = self.total is not None and done >= self.total
        if not always and not ended and now - self._last < pause:
            return
        self._last = now
        of_total = "" if self.total is None else f"/{self.total:,}"
        parts = [f"{self.stage:<8} {self.unit} {done:,}{of_total}", fields, self._left(done)]
        self._write("  ".join(p for p in parts if p), keep=always or ended)

    def _left(self, done: int) -> str:
        worked = done - self._done_before
        if self.total is None or worked <= 0 or done >= self.total:
            return ""
        seconds = (time.monotonic() - self.started) / worked * (self.total - done)
        return f"{clock(seconds)} left"

    def _write(self, line: str, keep: bool) -> None:
        line = printable(redact(line))
        if self._terminal:
            line = line if keep else line[: _columns(self.stream) - 1]
            self.stream.write("\r" + line.ljust(self._width) + ("\n" if keep else ""))
            self._width = 0 if keep else len(line)
            _state.open_line = None if keep else self.stream
        elif line != self._line:  # the last line of a stage may have been shown just before
            self.stream.write(line + "\n")
        self._line = line
        self.stream.flush()


def _columns(terminal: TextIO) -> int:
    """Return the width of a terminal, in which a longer line could not be redrawn."""
    with suppress(OSError, ValueError):  # not a terminal of the system
        return os.get_terminal_size(terminal.fileno()).columns or UNKNOWN_COLUMNS
    return UNKNOWN_COLUMNS


def say(line: object) -> None:
    """Print a message to standard error, in place of the progress line, which is drawn again."""
    if _state.quiet and not str(line).startswith(IMPORTANT):
        return
    _erase_progress()
    print(printable(redact(line)), file=sys.stderr, flush=True)


@cache
def say_once(line: str) -> None:
    """Print a message once per process, since jobs read and plan the same input more than once."""
    say(line)


def say_warnings(warnings: list[str]) -> list[str]:
    """Print warnings as messages, and return them."""
    for warning in warnings:
        say(f"warning: {warning}")
    return warnings


@contextmanager
def shown_warnings() -> Iterator[None]:
    """Print the warnings of the block as messages, after it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in caught:
        say(f"warning: {warning.message}")


def _json_escapes(error: UnicodeError) -> tuple[str, int]:
    """Return letters that an encoding lacks as JSON escapes, and the place after them."""
    assert isinstance(error, UnicodeEncodeError)
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


codecs.register_error("json", _json_escapes)


def print_output(text: object = "", end: str = "\n") -> None:
    """Print a result to standard output."""
    _erase_progress()
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(printable(text).encode(encoding, "json").decode(encoding), end=end, flush=True)


def _erase_progress() -> None:
    """Erase the progress line of the terminal, so that what follows starts on an empty line."""
    if _state.open_line is not None:
        _state.open_line.write("\r\x1b[K")
        _state.open_line.flush()
        _state.open_line = None


def clock(seconds: float) -> str:
    """Return seconds as m:ss or h:mm:ss."""
    minutes, second = divmod(round(seconds), 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour}:{minute:02}:{second:02}" if hour else f"{minute}:{second:02}"


def table(rows: Sequence[tuple[str, ...]], header: tuple[str, ...] | None = None) -> str:
    """Return rows as columns, the first left-aligned, the others right-aligned.

    With a header, columns that are empty in all rows are left out.
    """
    if header:
        filled = [any(row[place] for row in rows) or not rows for place in range(len(header))]
        rows = [tuple(compress(row, filled)) for row in rows]
        header = tuple(compress(header, filled))
    lines = [header, *rows] if header else list(rows)
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    text = []
    for line in lines:
        cells = [line[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        text.append("  ".join(cells).rstrip())
    if header:
        text.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(text)
