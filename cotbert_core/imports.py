"""Import large libraries without looking for garbage meanwhile."""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def first_import(module: str) -> Iterator[None]:
    """Pause garbage collection in a block that imports a library's `module` for the first time.

    What a library creates stays until the process ends; until then, collections leave it out.
    While transformers and MLflow are imported there were four collections of 0.07 s, which is 5 %
    of the time of an update with 1,000 new rows.
    """
    if module in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
        atexit.register(gc.unfreeze)


def skip_last_collection() -> None:
    """Leave out the search for cycles among all imported objects as a process ends: 4 s of 28.

    With triton they are searched: 3.9 (torch 2.15) prints a list of what it finds not collected.
    """
    if "triton" in sys.modules:
        gc.unfreeze()
    else:
        gc.freeze()
