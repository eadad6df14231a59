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
        atexit.register(collect_all_with_triton)


def collect_all_with_triton() -> None:
    """Let the search for cycles as a process ends include all objects if triton is imported.

    triton 3.9 (torch 2.15) prints a list of what is not collected. Without triton the search among
    the objects of the libraries would add 1 s to a program that opens an encoder.
    """
    if "triton" in sys.modules:
        gc.unfreeze()


def skip_last_collection() -> None:
    """Leave out the search for cycles among all objects as a process ends, which takes 4 s of 28,
    unless triton is imported."""
    gc.freeze()
    collect_all_with_triton()
