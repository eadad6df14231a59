"""Write Ray's warnings and errors during a job to a file in the job's output folder.

The terminal shows the job's own progress and Ray's errors. The file is created when Ray writes its
first line, so most output folders have none.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from cotbert_core.messages.printable import printable
from cotbert_core.messages.redaction import redact

LOG_FILE = "ray.log"
LOGGERS = ("ray", "ray.data", "ray.train", "ray.tune")
LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s"
COLOUR = re.compile(r"\x1b\[[\d;]*m")
# Lines in which Ray confirms settings that this project made; they are not logged.
EXPECTED = ("Progress bars disabled", "Set ray log level from environment variable")


@contextmanager
def logged_from(target: logging.Logger | logging.Handler, level: int) -> Iterator[None]:
    """Set the least level that a logger or a handler takes in the block."""
    previous = target.level
    target.setLevel(level)
    try:
        yield
    finally:
        target.setLevel(previous)


@contextmanager
def ray_log(folder: Path) -> Iterator[None]:
    """Write Ray's warnings and errors of the block to the folder's log; only errors are shown."""
    file = _LogFile(folder)
    with ExitStack() as stack:
        stack.callback(file.close)
        for name in LOGGERS:
            logger = logging.getLogger(name)
            stack.enter_context(logged_from(logger, logging.WARNING))
            for handler in logger.handlers:
                if type(handler) is not _LogFile and isinstance(handler, logging.StreamHandler):
                    stack.enter_context(logged_from(handler, logging.ERROR))
            if logger.handlers:  # the others propagate to their parent
                logger.addHandler(file)
                stack.callback(logger.removeHandler, file)
        yield


@contextmanager
def only_in_log(name: str, folder: Path) -> Iterator[None]:
    """Write a logger's warnings and errors of the block to the folder's log, and show none."""
    logger, file = logging.getLogger(name), _LogFile(folder)
    previous = logger.handlers, logger.propagate
    logger.handlers, logger.propagate = [file], False
    try:
        with logged_from(logger, logging.WARNING):
            yield
    finally:
        logger.handlers, logger.propagate = previous
        file.close()


def write_lines(folder: Path, text: str) -> None:
    """Append what Ray wrote to standard error to the folder's log."""
    lines = [
        _clean(line) + "\n" for line in text.splitlines() if line.strip() and _is_relevant(line)
    ]
    if lines:
        with suppress(OSError), (folder / LOG_FILE).open("a", encoding="utf-8") as file:
            file.writelines(lines)


def _is_relevant(line: str) -> bool:
    return not any(expected in line for expected in EXPECTED)


class _LogFile(logging.FileHandler):
    """The log file, opened at the first line. A write error does not end the job."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / LOG_FILE, encoding="utf-8", delay=True)
        self.setFormatter(_CleanLine(LINE))
        self.addFilter(lambda record: _is_relevant(record.getMessage()))

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        pass


class _CleanLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return _clean(super().format(record))


def _clean(text: str) -> str:
    """Return a text without credentials, control characters and Ray's colours."""
    return printable(redact(COLOUR.sub("", text)))
