"""Progress of `cotbert embed`, told by what the workers have recorded."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pipelines.embedding.blocks import Ledger, expected_rows
from pipelines.reading.read_plan import Plan
from pipelines.runtime.progress import Progress

WATCH_SECONDS = 0.5


@contextmanager
def watched(plan: Plan, ledger: Ledger) -> Iterator[None]:
    """Progress by the records that appear, for the length of the block; they all count after it.

    A unit may be a file of a million rows, so nothing of use comes back before it ends.
    """
    progress = Progress("embed", expected_rows(plan), "rows")
    progress.start_at(ledger.counts["read"])
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(WATCH_SECONDS):
            if ledger.update():  # else nothing new, and the last line would be told again
                _show(progress, ledger)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        if ledger.update() or progress.total is None:
            _show(progress, ledger, always=True)


def _show(progress: Progress, ledger: Ledger, always: bool = False) -> None:
    skipped = sum(ledger.skipped.values())
    told = [f"{ledger.rate:,.0f} rows/s"] if ledger.fresh else []
    told += [f"{skipped:,} skipped"] if skipped else []
    progress.show(ledger.counts["read"], "  ".join(told), always=always)
