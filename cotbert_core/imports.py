"""Import large libraries without looking for garbage meanwhile."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def first_import(module: str) -> Iterator[None]:
    """Pause garbage collection in a block that imports a library's `module` for the first time.

    While transformers and MLflow are imported there were four collections of 0.07 s, which is 5 %
    of the time of an update with 1,000 new rows. Afterwards everything is in the oldest generation,
    which is seldom searched. It is not left frozen: the caller's own objects would be too, and at
    the end of the program a file that belongs to a cycle would lose what was written to it.
    """
    if module in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():  # else the caller has frozen objects of its own
            gc.freeze()
            gc.unfreeze()
        gc.enable()


def skip_last_collection() -> None:
    """Leave out the search for cycles among all objects as a command ends, which takes 4 s of 28.

    Not if triton is imported: 3.9 (torch 2.15) prints a list of what is not collected.
    """
    if "triton" not in sys.modules:
        gc.freeze()
